-- Extends the leases of locks that are still held by their owners. Never creates one.
-- KEYS  lock, lock, …
-- ARGV  time to keep fences beyond a lease (ms), lease (ms), owner, owner, …, and where leases differ the
--       lease of each
-- Replies  1 if all are still held and nobody waits for them, else for each lock 1, 2 if it is held and others
--          wait for it, 0 if it is not held
-- The TTL only grows, except that a lock without one gets it back. The last command reads the locks, so
-- that tracking reports the changes by other clients.
local replies, queues, all, refused = {}, {}, 1
-- As text, because the server formats each number by printf. Locks of one lease are renewed together.
local fence_ttl, of_lease
for n, lock in ipairs(KEYS) do
  local owner, lease = ARGV[n + 2], ARGV[#KEYS + n + 2] or ARGV[2]
  if lease ~= of_lease then
    fence_ttl, of_lease = string.format('%.0f', ARGV[1] + lease), lease
  end
  queues[n] = lock .. ':queue'
  local held = redis.pcall('HEXISTS', lock, owner)
  if held == 1 then
    -- Also where it changes nothing: a replica that was the master a moment ago must refuse.
    local ttl = redis.call('PTTL', lock)
    redis.call('PEXPIRE', lock, ttl < tonumber(lease) and lease or ttl)
    redis.pcall('PEXPIRE', lock .. ':fence', fence_ttl)
    replies[n] = 1
  elseif held == 0 or string.find(held.err, 'WRONGTYPE', 1, true) then
    replies[n], all = 0, nil
  else
    refused = held
    break
  end
end
if not refused and redis.pcall('EXISTS', unpack(queues)) ~= 0 then
  for n, queue in ipairs(queues) do
    if replies[n] == 1 and redis.pcall('EXISTS', queue) == 1 then
      replies[n], all = 2, nil
    end
  end
end
redis.pcall('EXISTS', unpack(KEYS))
return refused or all or replies
