-- Sets the count of an owner's entries, and keeps its lock for another lease at least.
-- KEYS  lock
-- ARGV  owner, count, lease (ms), time to keep the fence (ms)
-- Replies  1  done
--          0  the owner does not hold the lock
-- The count is absolute, so a repeated request changes nothing.
local lock, owner = KEYS[1], ARGV[1]
local fence, held = lock .. ':fence', redis.call('HEXISTS', lock, owner)
if held == 1 then
  local ttl = redis.call('PTTL', lock)
  -- A write that takes no memory precedes the others, which then do not fail on a full server.
  redis.call('PEXPIRE', lock, ttl < tonumber(ARGV[3]) and ARGV[3] or ttl)
  redis.call('HSET', lock, owner, ARGV[2])
  if redis.call('PTTL', fence) < tonumber(ARGV[4]) then
    -- The lock is kept for longer, without a renewal.
    redis.pcall('PEXPIRE', fence, ARGV[4])
  end
end
redis.pcall('EXISTS', lock)
return held
