-- Releases those of several locks that their owners hold and that have no waiters. Leaves all others alone.
-- KEYS  lock, lock, …
-- ARGV  time to keep fences (ms), owner, owner, …
-- Replies  for each lock 1, or 0 if it needs a request of its own
local queues = {}
for n, lock in ipairs(KEYS) do
  queues[n] = lock .. ':queue'
end
local nobody_waits = redis.call('EXISTS', unpack(queues)) == 0

local replies = {}
for n, lock in ipairs(KEYS) do
  replies[n] = 0
  if (nobody_waits or redis.pcall('EXISTS', queues[n]) == 0) and redis.pcall('HDEL', lock, ARGV[n + 1]) == 1 then
    local fence = lock .. ':fence'
    if redis.pcall('INCR', fence) == 1 then
      redis.pcall('PEXPIRE', fence, ARGV[1])
    end
    replies[n] = 1
  end
end
return replies
