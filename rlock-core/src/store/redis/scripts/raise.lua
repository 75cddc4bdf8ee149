-- Raises the fencing token of a lock that its owner holds, to what other servers gave the same owner.
-- KEYS  lock
-- ARGV  owner, token, time to keep the fence (ms)
-- Answers  1 its token is this or a higher one, 0 the owner does not hold the lock
-- It is never lowered. The last command reads the lock, so that tracking sees foreign changes.
local lock, fence = KEYS[1], KEYS[1] .. ':fence'
if redis.call('HEXISTS', lock, ARGV[1]) == 0 then
  return 0
end
-- Lua's numbers are doubles: from 2^53 on, tokens would repeat on every server raised to one.
local last, token = redis.call('GET', fence) or '0', tonumber(ARGV[2])
local known = string.find(last, '^%d+$') and tonumber(last)
if not known or known >= 9007199254740992 or token >= 9007199254740992 then
  return redis.error_reply('WRONGTYPE ' .. fence .. ' is no fencing token, or is to be raised to none,'
    .. ' which is an integer below 2^53; delete it, and tokens go on from the server\'s time')
elseif known < token then
  redis.call('SET', fence, ARGV[2], 'PX', ARGV[3])
end
redis.pcall('EXISTS', lock)
return 1
