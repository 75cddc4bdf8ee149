-- Lowers an owner's count. At zero the lock goes to the next: to the caller's own next waiter, or to
-- the first in line.
-- KEYS  lock, fence, queue, record of the release
-- ARGV  owner, count wanted, keep (ms), TTL of the record (ms), TTL of a fence (ms), channel prefix,
--       and if the caller has a waiter: its owner, its lease (ms), 1 if it comes before those in line
-- Answers  1      done, now or by an earlier copy of this request
--          token  the same, and the caller's waiter has the lock
--          ''     the same, and the caller's waiter stands in line
--          0      the owner does not hold the lock
-- The count is absolute, so a repeated request changes nothing. A full server refuses commands that
-- may take memory only as long as a script has written nothing: a write that takes none goes first.
-- What an ACL may refuse after that is tried with pcall.
local lock, fence, queue, record = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, count, keep, record_ttl, fence_ttl, channel = unpack(ARGV, 1, 6)
local own, lease, first = ARGV[7], ARGV[8], ARGV[9] == '1'

if count ~= '0' then
  local held = redis.call('HGET', lock, owner)
  if not held then
    return 0
  elseif held ~= count then
    local ttl = redis.call('PTTL', lock)
    if ttl > 0 then
      redis.call('PEXPIRE', lock, ttl)
    end
    redis.call('HSET', lock, owner, count)
  end
  redis.pcall('EXISTS', lock)
  return 1
end

if keep ~= '0' and redis.call('HEXISTS', lock, owner) == 1 then
  -- Nobody holds it any more: neither a late renewal nor a late release finds its owner.
  redis.call('PEXPIRE', lock, keep)
  redis.call('HSET', lock, 'kept', '1')
  redis.call('HDEL', lock, owner)
  redis.pcall('SET', record, '1', 'PX', record_ttl + keep)
  local waiter = redis.pcall('ZRANGE', queue, 0, 0)[1]
  if waiter then
    tell(channel, waiter, lock, '', keep)
  end
  return 1
end

if redis.call('HDEL', lock, owner) == 1 then
  redis.pcall('SET', record, '1', 'PX', record_ttl)
  if not own and redis.pcall('EXISTS', queue) == 0 then
    return 1
  end
  local now = micros()
  local token = next_token(fence, fence_ttl, now)
  if not token then
    return 1
  elseif not first and hand_off(lock, queue, channel, now, token) then
    if own and stand_in_line(queue, own, now) == 1 then
      return ''
    end
  elseif own and type(redis.pcall('HSET', lock, own, 1)) == 'number' then
    if redis.pcall('PEXPIRE', lock, lease) == 1 then
      redis.pcall('EXISTS', lock)
      return token
    end
    redis.call('HDEL', lock, own)
  end
  return 1
end

-- Whoever only stood in line leaves it.
redis.pcall('ZREM', queue, owner)
if redis.pcall('EXISTS', record) ~= 1 then
  return 0
elseif own and redis.pcall('HEXISTS', lock, own) == 1 then
  redis.pcall('PEXPIRE', lock, lease)
  return redis.pcall('GET', fence)
elseif own and type(redis.pcall('ZSCORE', queue, own)) == 'string' then
  return ''
end
return 1
