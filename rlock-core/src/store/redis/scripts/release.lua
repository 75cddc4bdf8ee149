-- Lowers an owner's count; at zero gives the lock back and wakes those who wait.
-- KEYS  lock, record of the release
-- ARGV  owner, count wanted, keep (ms), channel, TTL of the record (ms)
-- Answers  1  done, now or by an earlier copy of this request
--          0  the owner does not hold the lock
-- The count is absolute, so a repeated request changes nothing. A full server refuses commands that
-- may take memory only as long as a script has written nothing: a write that takes none goes first.
-- What an ACL may refuse after that is tried with pcall.
local lock, record = KEYS[1], KEYS[2]
local owner, count, keep = ARGV[1], ARGV[2], tonumber(ARGV[3])
local held = redis.call('HGET', lock, owner)
if not held then
  return redis.pcall('EXISTS', record) == 1 and 1 or 0
end

if count ~= '0' then
  if held ~= count then
    local ttl = redis.call('PTTL', lock)
    if ttl > 0 then
      redis.call('PEXPIRE', lock, ttl)
    end
    redis.call('HSET', lock, owner, count)
  end
  redis.pcall('EXISTS', lock)
  return 1
end

if keep > 0 then
  -- Nobody holds it any more: neither a late renewal nor a late release finds its owner.
  redis.call('PEXPIRE', lock, keep)
  redis.call('HSET', lock, 'kept', '1')
  redis.call('HDEL', lock, owner)
  redis.pcall('SET', record, '1', 'PX', ARGV[5] + keep)
  -- Waiters learn how short the rest is.
  redis.pcall('PUBLISH', ARGV[4], '')
  return 1
end

redis.call('HDEL', lock, owner)
redis.pcall('SET', record, '1', 'PX', ARGV[5])
redis.pcall('PUBLISH', ARGV[4], '')
return 1
