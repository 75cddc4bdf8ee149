-- Releases a lock: hands it off to the first waiter or, without one, deletes it.
-- KEYS  lock
-- ARGV  owner, at least (ms), a fence to raise that of the lock to or 0, time to keep the fence (ms), channel prefix,
--       `first` to hand the lock off or `all` to make all waiters ask again, the floor of new fences less a second or 0,
--       how long to refuse late acquires of the owner, and of earlier ones of its client (ms), or 0
-- Replies  1  done
--          0  the owner does not hold the lock
local lock, owner, min_hold = KEYS[1], ARGV[1], ARGV[2]
local queue, held = lock .. ':queue', nil
-- An owner that does not end with a digit may share the lock.
local lib = string.byte(owner, -1) > 57 and library() or nil
local is_shared = lib ~= nil
-- Read before the lock changes. After a later read, the server would report the next acquire as a change by another client.
local nobody_waits = redis.pcall('EXISTS', queue) == 0
local late, sequence, last
if ARGV[8] ~= '0' then
  late, sequence = lock .. ':' .. string.sub(owner, 1, 36) .. ':released', tonumber(string.match(owner, ':(%d+)'))
  last = tonumber(redis.pcall('GET', late)) or 0
end
if lib then
  held = lib.leave(lock, owner, min_hold ~= '0' and min_hold)
elseif min_hold == '0' then
  held = redis.pcall('HDEL', lock, owner)
elseif redis.call('HEXISTS', lock, owner) == 1 then
  -- The lock has no owner any more, so a late renewal or release finds none.
  redis.call('PEXPIRE', lock, min_hold)
  redis.call('HSET', lock, 'kept', '1')
  held = redis.call('HDEL', lock, owner)
end
if (held == 1 or ARGV[6] == 'all') and ARGV[3] ~= '0' then
  -- Another owner may have the lock, and its fence is kept for longer.
  lib = lib or library()
  local others = (is_shared or held ~= 1) and redis.call('PTTL', lock .. ':fence') or 0
  lib.next_fence(lock, math.max(tonumber(ARGV[4]), others), tonumber(ARGV[3]))
end
if ARGV[6] == 'all' and (held == 1 or ARGV[3] ~= '0') then
  -- No late or repeated request brings the lock back. An owner that only waited does not displace one that had the lock.
  redis.pcall('SET', lock .. ':released', string.match(owner, '^[^s]+'), 'PX', ARGV[4])
end
if last and type(held) ~= 'table' then
  redis.pcall('SET', late, string.format('%.0f', math.max(last, sequence)), 'PX', ARGV[8])
end
if nobody_waits then
  return held or 0
end
lib = lib or library()
lib.floor = tonumber(ARGV[7])
if held == 1 and ARGV[6] == 'all' and is_shared and redis.pcall('EXISTS', lock) == 1 then
  return held
elseif held == 1 and ARGV[6] == 'all' then
  if min_hold == '0' and redis.pcall('HSET', lock, 'kept', '1') == 1 then
    -- No owner gets the lock until the notifications have arrived: the releasing client would precede all others.
    min_hold = lib.UNTIL_NOTIFIED
    redis.call('PEXPIRE', lock, min_hold)
  end
  lib.ask_all(ARGV[5], lock, min_hold)
elseif held == 1 and min_hold == '0' then
  lib.hand_off(ARGV[5], lock, ARGV[4], nil, nil, is_shared)
else
  -- An owner that only waited leaves the queue. Only the first waiter learns that a lock became free without a release,
  -- so the next one that is alive asks, and learns that it is the first.
  local first = redis.pcall('ZRANGE', queue, '0', '0')[1]
  redis.pcall('ZREM', queue, owner)
  if first == owner and ARGV[6] ~= 'all' and redis.pcall('EXISTS', lock, lock .. ':shared') == 2 then
    -- The waiters behind it may share the lock.
    lib.hand_off(ARGV[5], lock, ARGV[4], nil, nil, true)
  end
  if held == 1 or first == owner then
    lib.ask_first(ARGV[5], lock, min_hold)
  end
end
return held or 0
