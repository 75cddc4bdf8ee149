-- Extends the leases of locks that their owners still hold; 0 leaves them as they are. Never leaves a new lock.
-- KEYS  lock, lock, …
-- ARGV  lease (ms), time to keep fences (ms), owner, least new fence or 0, owner, least new fence or 0, …
--       Instead of a least new fence, `=` and the last fence keeps that for a further lease
-- Replies  1    all are held, no owner waits for them, and no new fence was asked for
--          {…}  otherwise, for each lock: 0 not held, 1 held, or its new fence; negative if others wait for it
-- A lock gets a new fence only if its last one is smaller than the least. Otherwise another owner may have had it.
-- The TTL becomes the lease, even if it was longer: the clock of the server may have stepped back.

-- Returns 1 if the owner holds the lock, else 0 or an error. HSETNX changes nothing then. At a read, a server that
-- tracks keys would go through all keys of the script.
local function holds(lock, owner)
  local added = redis.pcall('HSETNX', lock, owner, '1')
  if type(added) == 'table' then
    return string.find(added.err, 'READONLY', 1, true) and added or redis.pcall('HEXISTS', lock, owner)
  elseif added == 1 and redis.pcall('HDEL', lock, owner) ~= 1 and redis.call('PTTL', lock) == -1 then
    redis.call('PEXPIRE', lock, ARGV[1])
  end
  return 1 - added
end

local lib

-- Keeps the last fence of a lock for this time, or sets it again if the server has lost it. Other holders of a shared lock may
-- have set it for longer.
local function keep_fence(lock, ttl, fence, is_shared)
  local key = lock .. ':fence'
  if is_shared and redis.call('PTTL', key) > ttl then
    return
  end
  if redis.pcall('PEXPIRE', key, ttl) == 0 then
    lib = lib or library()
    lib.next_fence(lock, ttl, tonumber(fence), true)
  end
end

local replies, queues, all, refused = {}, {}, 1, nil
for n, lock in ipairs(KEYS) do
  queues[n] = lock .. ':queue'
  local owner, held = ARGV[2 * n + 1], nil
  -- An owner that does not end with a digit may share the lock.
  local is_shared = string.byte(owner, -1) > 57
  if is_shared then
    lib = lib or library()
    held = lib.shares(lock, owner)
    held = held == true and 1 or held or 0
  else
    held = holds(lock, owner)
  end
  if held == 1 then
    replies[n] = 1
    if is_shared then
      -- Without a lease to set, a write that changes nothing: a demoted master refuses it, and a full server does not.
      refused = ARGV[1] == '0' and lib.keep(lock, lib.mode(owner)) or lib.extend(lock, owner, ARGV[1])
      if type(refused) == 'table' then
        break
      end
      refused = nil
    elseif ARGV[1] ~= '0' then
      redis.call('PEXPIRE', lock, ARGV[1])
    end
    local fence = ARGV[2 * n + 2]
    if string.byte(fence) == 61 then
      keep_fence(lock, ARGV[1] + ARGV[2], string.sub(fence, 2), is_shared)
    elseif fence ~= '0' then
      lib = lib or library()
      replies[n], all = lib.next_fence(lock, ARGV[2], tonumber(fence)) or 1, nil
    end
  elseif held == 0 or string.find(held.err, 'WRONGTYPE', 1, true) then
    replies[n], all = 0, nil
  else
    refused = held
    break
  end
end
if not refused and redis.pcall('EXISTS', unpack(queues)) ~= 0 then
  for n, queue in ipairs(queues) do
    if replies[n] > 0 and redis.pcall('EXISTS', queue) == 1 then
      replies[n], all = -replies[n], nil
    end
  end
end
redis.pcall('EXISTS', unpack(KEYS))
return refused or all or replies
