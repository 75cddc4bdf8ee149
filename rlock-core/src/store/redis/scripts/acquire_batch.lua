-- Acquires those of several locks that are free and have no waiters. Leaves all others alone.
-- KEYS  lock, lock, …
-- ARGV  time to keep fences beyond a lease (ms), least token (see the library), owner, lease (ms), owner,
--       lease (ms), …
-- Replies  for each lock the first token of its block, or 0 if it needs a request of its own
-- A script costs the server about as much as three commands in it, and one EXISTS reads all keys.
local lib, queues = library(), {}
local least, promoted = lib.least_token(ARGV[2])
if promoted then
  return promoted
end
for n, lock in ipairs(KEYS) do
  queues[n] = lock .. ':queue'
end
local all_free = redis.call('EXISTS', unpack(KEYS)) + redis.call('EXISTS', unpack(queues)) == 0

local granted, replies = {}, {}
local fence_ttl, of_lease
for n, lock in ipairs(KEYS) do
  local owner, lease = ARGV[2 * n + 1], ARGV[2 * n + 2]
  if lease ~= of_lease then
    fence_ttl, of_lease = string.format('%.0f', ARGV[1] + lease), lease
  end
  replies[n] = 0
  if all_free and not granted[lock] or redis.pcall('EXISTS', lock, queues[n]) == 0 then
    local token = lib.next_token(lock, fence_ttl, least)
    if token and redis.pcall('HSET', lock, owner, '1') == 1 then
      if redis.pcall('PEXPIRE', lock, lease) == 1 then
        granted[lock], replies[n] = true, token
      else
        redis.pcall('HDEL', lock, owner)
      end
    end
  end
end
redis.pcall('EXISTS', unpack(KEYS))
return replies
