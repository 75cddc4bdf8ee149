-- Raises the fencing token of a held lock to the token that other servers gave the same owner.
-- KEYS  lock
-- ARGV  owner, token, time to keep the fence (ms)
-- Replies  1  the token is at least this
--          0  the owner does not hold the lock
-- The token is never lowered.
local lock, fence, lib = KEYS[1], KEYS[1] .. ':fence', library()
if redis.call('HEXISTS', lock, ARGV[1]) == 0 then
  return 0
end
local last, refused = lib.last_token(lock)
if refused then
  return refused
elseif tonumber(ARGV[2]) >= 9007199254740992 then
  return lib.invalid_token(fence)
elseif (last or 0) < tonumber(ARGV[2]) then
  redis.call('SET', fence, ARGV[2], 'PX', ARGV[3])
end
redis.pcall('EXISTS', lock)
return 1
