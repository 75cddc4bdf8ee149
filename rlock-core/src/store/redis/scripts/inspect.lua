-- Returns the owner of a lock, and the owners that wait for it.
-- KEYS  lock
-- Replies  {owner, count, ttl (ms, -1: no end), fence or '', {first waiter, ...}}, or {} if the lock is free
local lock = KEYS[1]
local entry = redis.pcall('HGETALL', lock)
if entry.err then
  -- A key of another type has the lock's name.
  local is_foreign = string.find(entry.err, 'WRONGTYPE', 1, true)
  return is_foreign and {'(not a hash)', '0', redis.call('PTTL', lock), '', {}} or entry
elseif #entry == 0 then
  return {}
end
-- A foreign key with the name of the queue or the fence, or a missing permission, must not hide the owner.
local queue = redis.pcall('ZRANGE', lock .. ':queue', 0, 99)
local fence = redis.pcall('GET', lock .. ':fence')
return {
  entry[1], entry[2], redis.call('PTTL', lock), type(fence) == 'string' and fence or '', queue.err and {} or queue,
}
