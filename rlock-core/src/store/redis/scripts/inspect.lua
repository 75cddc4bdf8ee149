-- Returns the owner of a lock.
-- KEYS  lock
-- Replies  {owner, count, ttl (ms, -1: no end), token or ''}, or {} if the lock is free
local entry = redis.call('HGETALL', KEYS[1])
if #entry == 0 then
  return {}
end
return {entry[1], entry[2], redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[1] .. ':fence') or ''}
