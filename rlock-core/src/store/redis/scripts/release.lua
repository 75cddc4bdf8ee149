-- Lowers an owner's count; at zero gives the lock back and wakes those who wait.
-- KEYS  lock, record of the release
-- ARGV  owner, count wanted, keep (ms), channel, TTL of the record (ms)
-- Answers  1  done, now or by an earlier copy of this request
--          0  the owner does not hold the lock
-- The count is absolute, so a repeated request changes nothing. What a full server or an ACL may
-- refuse is tried with pcall: it must not keep a lock from being given back.
local lock, record = KEYS[1], KEYS[2]
local owner, count, keep = ARGV[1], ARGV[2], tonumber(ARGV[3])
local held = redis.call('HGET', lock, owner)
if not held then
  return redis.call('EXISTS', record)
end

if count ~= '0' then
  if held ~= count then
    redis.pcall('HSET', lock, owner, count)
  end
  redis.call('EXISTS', lock)
  return 1
end

if keep > 0 then
  if redis.call('EXISTS', record) == 0 then
    redis.call('PEXPIRE', lock, keep)
    redis.pcall('SET', record, '1', 'PX', ARGV[5] + keep)
  end
  return 1
end

redis.call('HDEL', lock, owner)
redis.pcall('SET', record, '1', 'PX', ARGV[5])
redis.pcall('PUBLISH', ARGV[4], '')
return 1
