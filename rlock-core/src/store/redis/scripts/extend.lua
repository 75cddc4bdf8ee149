-- Reserves further fencing tokens for the owner of a lock.
-- KEYS  lock
-- ARGV  owner, tokens wanted, least token
-- Answers  {fence, n}  the fence grew by n to this: as many tokens more are the owner's, a block beyond the fence
--          {fence, 0}  there are none at present
--          {}          the owner does not hold the lock
-- The fence never passes the server's time (µs), so that tokens that begin anew at the time are larger than all
-- before. A repeated request reserves more than is used.
-- Lua's numbers are doubles: from 2^53 on, tokens would repeat.
local TOO_LARGE = 9007199254740992
local lock, fence = KEYS[1], KEYS[1] .. ':fence'
if redis.call('HEXISTS', lock, ARGV[1]) == 0 then
  return {}
end
local last = redis.call('GET', fence) or '0'
last = string.find(last, '^%d+$') and tonumber(last) or TOO_LARGE
if last >= TOO_LARGE then
  return redis.error_reply('WRONGTYPE ' .. fence .. ' is no fencing token, which is an integer below 2^53;'
    .. ' delete it, and tokens go on from the server\'s time')
end
local time = redis.call('TIME')
local n = math.min(tonumber(ARGV[2]), time[1] * 1000000 + time[2] - last)
-- What is less than the floor was counted from nothing: the next grant begins anew.
-- One alone would pass for the mark of a release.
if last < tonumber(ARGV[3]) or n < 2 then
  return {last, 0}
end
redis.call('INCRBY', fence, string.format('%.0f', n))
return {last + n, n}
