-- Extends the leases of locks that their owners still hold. Never creates a lock.
-- KEYS  lock, lock, …
-- ARGV  lease (ms), time to keep the fences (ms), owner, owner, …
-- Replies  1          all are held, and no owner waits for them
--          {…}        otherwise, for each lock: 1 held, 2 held and others wait for it, 0 not held
-- The TTL becomes the lease, even if it was longer: the clock of the server may have stepped back. The last command reads
-- the locks, so that tracking reports the changes by other clients.
local lease, fence_ttl = ARGV[1], ARGV[2]
local replies, queues, all, refused = {}, {}, 1
for n, lock in ipairs(KEYS) do
  queues[n] = lock .. ':queue'
  local held = redis.pcall('HEXISTS', lock, ARGV[n + 2])
  if held == 1 then
    redis.call('PEXPIRE', lock, lease)
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
