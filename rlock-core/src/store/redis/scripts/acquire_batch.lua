-- Acquires those of several locks that are free and have no waiters. Leaves all others alone.
-- KEYS  lock, lock, …
-- ARGV  time to keep fences beyond a lease (ms), owner, lease (ms), owner, lease (ms), …
-- Replies  for each lock its fence, or 0 if it needs a request of its own
-- A script costs the server about as much as three commands in it, and one EXISTS reads all keys.
local queues, granted, replies = {}, {}, {}
for n, lock in ipairs(KEYS) do
  queues[n] = lock .. ':queue'
end
local all_free = redis.call('EXISTS', unpack(KEYS)) + redis.call('EXISTS', unpack(queues)) == 0

for n, lock in ipairs(KEYS) do
  local owner, lease = ARGV[2 * n], ARGV[2 * n + 1]
  replies[n] = 0
  if all_free and not granted[lock] or redis.pcall('EXISTS', lock, queues[n]) == 0 then
    local fence = next_fence(lock, string.format('%.0f', ARGV[1] + lease))
    if fence and redis.pcall('HSET', lock, owner, '1') == 1 then
      if redis.pcall('PEXPIRE', lock, lease) == 1 then
        granted[lock], replies[n] = true, fence
      else
        redis.pcall('HDEL', lock, owner)
      end
    end
  end
end
redis.pcall('EXISTS', unpack(KEYS))
return replies
