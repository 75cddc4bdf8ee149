-- Lowers an owner's count. Zero hands the lock off to the first waiter or, without one, deletes it. An owner that shares the
-- lock has no count: 1 makes its exclusive lock a shared one.
-- KEYS  lock
-- ARGV  owner, count wanted, at least (ms), a fence to raise that of the lock to or 0, time to keep the fence (ms), channel
--       prefix, `first` to hand the lock off or `all` to make all waiters ask again, the floor of new fences or 0
-- Replies  1  done
--          0  the owner does not hold the lock
-- The count is absolute, so a repeated request changes nothing.
local lock, owner, count, min_hold = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local queue, held = lock .. ':queue', nil
-- An owner that does not end with a digit may share the lock.
local lib = string.byte(owner, -1) > 57 and library() or nil
local is_shared = lib ~= nil
-- Makes the first waiters whose clients listen ask again after this time (ms).
local function ask_all(after)
  local heard = 0
  repeat
    local waiters = redis.pcall('ZPOPMIN', queue, '100')
    for n = 1, #waiters, 2 do
      heard = heard + (lib.tell(ARGV[6], waiters[n], lock, '', after) and 1 or 0)
    end
  until heard > 0 or not waiters[1]
end
if count ~= '0' and lib then
  -- It had the exclusive lock, and shares it from now on.
  held = lib.shares(lock, owner)
  floor = tonumber(ARGV[8])
  if (held == true or ARGV[7] == 'all') and ARGV[4] ~= '0' then
    -- Those who join it have no smaller fence.
    next_fence(lock, ARGV[5] + math.max(redis.call('PTTL', lock), 0), tonumber(ARGV[4]))
  end
  if held == true and ARGV[7] == 'all' then
    ask_all('0')
  elseif held == true then
    lib.hand_off(ARGV[6], lock, ARGV[5], nil, nil, true)
  end
  redis.pcall('EXISTS', lock)
  return held == true and 1 or held or 0
elseif count ~= '0' then
  held = redis.call('HGET', lock, owner)
  if held and held ~= count then
    -- A write that takes no memory precedes the others, which then do not fail on a full server.
    local ttl = redis.call('PTTL', lock)
    if ttl > 0 then
      redis.call('PEXPIRE', lock, ttl)
    end
    redis.call('HSET', lock, owner, count)
  end
  redis.pcall('EXISTS', lock)
  return held and 1 or 0
end
-- Before the lock changes: after a later read, the server would report the next acquire as a foreign change.
local nobody_waits = redis.pcall('EXISTS', queue) == 0
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
if (held == 1 or ARGV[7] == 'all') and ARGV[4] ~= '0' then
  -- Another owner may have the lock, and its fence is kept for longer.
  local others = (is_shared or held ~= 1) and redis.call('PTTL', lock .. ':fence') or 0
  next_fence(lock, math.max(tonumber(ARGV[5]), others), tonumber(ARGV[4]))
end
if ARGV[7] == 'all' and (held == 1 or ARGV[4] ~= '0') then
  -- No late or repeated request brings the lock back. An owner that only waited does not displace one that had the lock.
  redis.pcall('SET', lock .. ':released', string.match(owner, '^[^s]+'), 'PX', ARGV[5])
end
if nobody_waits then
  return held or 0
end
lib, floor = lib or library(), tonumber(ARGV[8])
if held == 1 and ARGV[7] == 'all' and is_shared and redis.pcall('EXISTS', lock) == 1 then
  return held
elseif held == 1 and ARGV[7] == 'all' then
  if min_hold == '0' and redis.pcall('HSET', lock, 'kept', '1') == 1 then
    -- No owner gets the lock until the notifications have arrived: the releasing client would precede all others.
    min_hold = '5'
    redis.call('PEXPIRE', lock, min_hold)
  end
  ask_all(min_hold)
elseif held == 1 and min_hold == '0' then
  lib.hand_off(ARGV[6], lock, ARGV[5], nil, nil, is_shared)
else
  -- An owner that only waited leaves the queue. Only the first waiter learns that a lock became free without a release,
  -- so the next one that is alive asks, and learns that it is the first.
  local first = redis.pcall('ZRANGE', queue, '0', '0')[1]
  redis.pcall('ZREM', queue, owner)
  if first == owner and ARGV[7] ~= 'all' and redis.pcall('EXISTS', lock, lock .. ':shared') == 2 then
    -- The waiters behind it may share the lock.
    lib.hand_off(ARGV[6], lock, ARGV[5], nil, nil, true)
  end
  if held == 1 or first == owner then
    lib.ask_first(ARGV[6], lock, min_hold)
  end
end
return held or 0
