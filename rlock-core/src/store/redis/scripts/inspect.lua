-- Returns the owner of a lock, and the owners that wait for it.
-- KEYS  lock
-- Replies  {owner, count, ttl (ms, -1: no end), fence or '', {first waiter, …}, number of holders (at most 1000), {other holder, …},
--          number of permits that they take}, or {} if the lock is free
local lock, lib = KEYS[1], library()
local entry = redis.pcall('HGETALL', lock)
if entry.err then
  -- A key of another type has the lock's name.
  local is_foreign = string.find(entry.err, 'WRONGTYPE', 1, true)
  return is_foreign and {'(not a hash)', '0', redis.call('PTTL', lock), '', {}, 1, {}, 0} or entry
elseif #entry == 0 then
  return {}
end
-- A foreign key with the name of the queue or the fence, or a missing permission, must not hide the owner.
local queue = redis.pcall('ZRANGE', lock .. ':queue', '0', lib.MOST_SHOWN - 1)
local fence = redis.pcall('GET', lock .. ':fence')
local owner, count, others, entries, permits = entry[1], 1, {}, entry[2], 0
if owner == 'shared' or owner == 'permits' then
  local shared, time = lock .. ':shared', redis.call('TIME')
  local now = string.format('(%d%03d', time[1], math.floor(time[2] / 1000))
  local all = redis.call('ZRANGE', shared, now, '+inf', 'BYSCORE', 'LIMIT', 0, 1000)
  for n = 1, owner == 'permits' and #all or 0 do
    permits = permits + (string.match(all[n], '%.(%d+)%.%d+p$') or 1)
  end
  owner, count, entries = all[1], #all, '1'
  if not owner then
    return {}
  end
  for n = 2, math.min(count, lib.MOST_SHOWN) do
    others[n - 1] = all[n]
  end
end
return {
  owner, entries, redis.call('PTTL', lock), type(fence) == 'string' and fence or '', queue.err and {} or queue, count, others,
  permits,
}
