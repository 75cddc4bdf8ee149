-- Reserves further fencing tokens for the owner of a lock.
-- KEYS  lock
-- ARGV  owner, tokens wanted, least token (see the library)
-- Replies  {fence, n}  the fence grew by n to this value: the owner has n more tokens, a block beyond the fence
--          {fence, 0}  no token is available now
--          {}          the owner does not hold the lock
-- The fence never passes the server's time (µs), so tokens that restart at the time are larger than all before. A
-- repeated request reserves tokens that are not used.
local lock, lib = KEYS[1], library()
if redis.call('HEXISTS', lock, ARGV[1]) == 0 then
  return {}
end
local last, refused = lib.last_token(lock)
if refused then
  return refused
end
local least, promoted = lib.least_token(ARGV[3])
if promoted then
  return promoted
end
last = last or 0
local time = redis.call('TIME')
local n = math.min(tonumber(ARGV[2]), time[1] * 1000000 + time[2] - last)
-- A fence below the least token was lost or is an older copy, and the next grant restarts it. An extension by one token
-- would look like a release.
if last < least or n < 2 then
  return {last, 0}
end
redis.call('INCRBY', lock .. ':fence', string.format('%.0f', n))
return {last + n, n}
