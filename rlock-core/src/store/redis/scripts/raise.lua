-- Raises the fencing token of a lock that its owner holds, to what other servers gave the same owner.
-- KEYS  lock
-- ARGV  owner, token, a day and the lease (ms)
-- Answers  1 its token is this or a higher one, 0 the owner does not hold the lock
-- It is never lowered. The last command reads the lock, so that tracking sees foreign changes.
local lock, fence = KEYS[1], KEYS[1] .. ':fence'
if redis.call('HEXISTS', lock, ARGV[1]) == 0 then
  return 0
end
if (tonumber(redis.call('GET', fence)) or 0) < tonumber(ARGV[2]) then
  redis.call('SET', fence, ARGV[2], 'PX', 2 * ARGV[3])
end
redis.pcall('EXISTS', lock)
return 1
