-- Lowers an owner's count. At zero the lock goes to the next: to the caller's own next waiter, or to
-- the first in line.
-- KEYS  lock
-- ARGV  owner, count wanted, keep (ms), token of the hold, TTL of a fence (ms), channel prefix, and if
--       the caller has a waiter: its owner, its lease (ms), 1 if it comes before those in line
-- Answers  1      done, now or by an earlier copy of this request
--          token  the same, and the caller's waiter has the lock
--          ''     the same, and the caller's waiter stands in line
--          2      the owner does not hold the lock, and others have held it since
--          0      the owner does not hold the lock
-- The count is absolute, so a repeated request changes nothing. A release leaves the fence one above
-- its token, by which a late copy of the request knows that an earlier one was done. A full server
-- refuses commands that may take memory only as long as a script has written nothing: a write that
-- takes none goes first. What an ACL may refuse after that is tried with pcall.
local lock, fence, queue = KEYS[1], KEYS[1] .. ':fence', KEYS[1] .. ':queue'
local owner, count, keep, token, fence_ttl, channel = unpack(ARGV, 1, 6)
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
  redis.pcall('INCR', fence)
  local waiter = redis.pcall('ZRANGE', queue, 0, 0)[1]
  if waiter then
    local _, _, tell = waiters(channel)
    tell(waiter, lock, '', keep)
  end
  return 1
end

if redis.call('HDEL', lock, owner) == 1 then
  local in_line = own and first and {} or redis.pcall('ZPOPMIN', queue)
  if not own and not in_line[1] then
    if redis.pcall('INCR', fence) == 1 then
      redis.pcall('PEXPIRE', fence, fence_ttl)
    end
    return 1
  end
  local next = next_token(lock)
  if not next or not redis.pcall('SET', fence, next, 'PX', fence_ttl).ok then
    return 1
  end
  if in_line[1] then
    local hand_off, stand_in_line = waiters(channel)
    if hand_off(lock, next, in_line) then
      return own and stand_in_line(lock, own) == 1 and '' or 1
    end
  end
  if own and type(redis.pcall('HSET', lock, own, 1)) == 'number' then
    if redis.pcall('PEXPIRE', lock, lease) == 1 then
      redis.pcall('EXISTS', lock)
      return next
    end
    redis.call('HDEL', lock, own)
  end
  return 1
end

-- Whoever only stood in line leaves it.
redis.pcall('ZREM', queue, owner)
if own and redis.pcall('HEXISTS', lock, own) == 1 then
  redis.pcall('PEXPIRE', lock, lease)
  return redis.pcall('GET', fence)
elseif own and type(redis.pcall('ZSCORE', queue, own)) == 'string' then
  return ''
end
local above = (tonumber(redis.pcall('GET', fence)) or 0) - tonumber(token)
return above == 1 and 1 or above > 1 and 2 or 0
