-- Releases those of several locks that their owners hold and that have no waiters. Leaves all others alone.
-- KEYS  lock, lock, …
-- ARGV  owner, owner, …
-- Replies  for each lock 1, or 0 if it needs a request of its own
local queues, replies = {}, {}
for n, lock in ipairs(KEYS) do
  queues[n] = lock .. ':queue'
end
local nobody_waits = redis.call('EXISTS', unpack(queues)) == 0
for n, lock in ipairs(KEYS) do
  local may_go = nobody_waits or redis.pcall('EXISTS', queues[n]) == 0
  replies[n] = may_go and redis.pcall('HDEL', lock, ARGV[n]) == 1 and 1 or 0
end
return replies
