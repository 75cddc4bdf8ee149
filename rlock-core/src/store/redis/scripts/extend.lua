-- Reserves further fencing tokens for the owner of a lock.
-- KEYS  lock
-- ARGV  owner, tokens wanted, time to keep the fence (ms)
-- Answers  {last, n}  the n tokens up to the last are the owner's
--          {}         the owner does not hold the lock
-- The fence never passes the server's time (µs), so that tokens that begin anew at the time are larger than all
-- before. A repeated request reserves more than is used.
local lock, fence = KEYS[1], KEYS[1] .. ':fence'
if redis.call('HEXISTS', lock, ARGV[1]) == 0 then
  return {}
end
local time, last = redis.call('TIME'), redis.pcall('GET', fence)
last = type(last) == 'string' and string.find(last, '^%d+$') and tonumber(last)
local n = last and math.min(tonumber(ARGV[2]), time[1] * 1000000 + time[2] - last) or 0
if n < 1 then
  return {0, 0}
end
redis.call('INCRBY', fence, string.format('%.0f', n))
redis.pcall('PEXPIRE', fence, ARGV[3])
return {last + n, n}
