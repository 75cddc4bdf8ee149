-- Extends the leases of locks that their owners still hold; 0 leaves them as they are. Never leaves a new lock.
-- KEYS  lock, lock, …
-- ARGV  lease (ms), time to keep fences (ms), owner, least new fence or 0, owner, least new fence or 0, …
--       Instead of a least new fence, `=` and the last fence keeps that for a further lease
-- Replies  1    all are held, no owner waits for them, and no new fence was asked for
--          {…}  otherwise, for each lock: 0 not held, 1 held, or its new fence; negative if others wait for it
-- A lock gets a new fence only if its last one is smaller than the least. Otherwise another owner may have had it.
-- A TTL only grows: a renewal that runs late may be by a shorter lease than a later one, which its client relies on.

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

-- Keeps a lock for another lease at least. Only a TTL that is longer or missing needs a read, except before Redis 7, which does
-- not know `GT`.
local function extend(lock)
  if redis.pcall('PEXPIRE', lock, ARGV[1], 'GT') ~= 1 and redis.call('PTTL', lock) < tonumber(ARGV[1]) then
    redis.call('PEXPIRE', lock, ARGV[1])
  end
end

-- Returns how long the fence of a lock is kept: for this time at least (ms).
local function kept_for(lock, least)
  local ttl = redis.call('PTTL', lock .. ':fence')
  return ttl > tonumber(least) and ttl or least
end

-- Keeps the last fence of a lock, or sets it again if the server has lost it.
local function keep_fence(lock, fence)
  local ttl = kept_for(lock, ARGV[1] + ARGV[2])
  if redis.pcall('PEXPIRE', lock .. ':fence', ttl) == 0 then
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
      extend(lock)
    end
    local fence = ARGV[2 * n + 2]
    if string.byte(fence) == 61 then
      keep_fence(lock, string.sub(fence, 2))
    elseif fence ~= '0' then
      lib = lib or library()
      replies[n], all = lib.next_fence(lock, kept_for(lock, ARGV[2]), tonumber(fence)) or 1, nil
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
