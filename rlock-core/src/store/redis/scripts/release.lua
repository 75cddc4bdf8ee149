-- Lowers an owner's count. Zero hands the lock to the first owner in the wait queue or, without one, to the next local
-- waiter, or deletes it.
-- KEYS  lock
-- ARGV  owner, count wanted, at least (ms), the fence as the owner knows it, time to keep the fence (ms),
--       channel prefix, least token (see the library), and if the process has a local waiter: its owner, its lease (ms)
-- Replies  1      done, now or by an earlier copy of this request
--          token  the same, and the local waiter has the lock: the first token of its block. Another process may wait
--          ''     the same, and the local waiter is in the queue
--          2      the owner does not hold the lock, and others have held it since
--          0      the owner does not hold the lock
-- The count is absolute, so a repeated request changes nothing. A release raises the fence by one. From that a late
-- copy of the request detects that an earlier one was executed.
local lock, owner, count, at_least, next_local = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[8]
local fence, queue = lock .. ':fence', lock .. ':queue'

-- The usual case: no other process waits.
local released, first, token, least = nil, nil, nil, tonumber(ARGV[7])
if count == '0' and at_least == '0' then
  local removed = redis.pcall('HDEL', lock, owner)
  if type(removed) == 'table' then
    -- For example, another key has the lock's name. A waiter leaves the wait queue anyway.
    redis.pcall('ZREM', queue, owner)
    return removed
  end
  released = removed == 1
  if released then
    first = redis.pcall('ZPOPMIN', queue)
    if not next_local and not first[1] then
      if redis.pcall('INCR', fence) == 1 then
        redis.pcall('PEXPIRE', fence, ARGV[5])
      end
      return 1
    elseif least and not first[1] then
      token = redis.pcall('INCRBY', fence, '17')
      if type(token) == 'number' and token >= least and token < 9007199254740992
        and redis.pcall('HSET', lock, next_local, '1') == 1 and redis.pcall('PEXPIRE', lock, ARGV[9]) == 1 then
        redis.pcall('PEXPIRE', fence, ARGV[5])
        redis.pcall('EXISTS', lock)
        return token
      end
    end
  end
elseif count ~= '0' then
  local held = redis.call('HGET', lock, owner)
  if not held then
    return 0
  elseif held ~= count then
    -- A write that takes no memory precedes the others, which then do not fail on a full server.
    local ttl = redis.call('PTTL', lock)
    if ttl > 0 then
      redis.call('PEXPIRE', lock, ttl)
    end
    redis.call('HSET', lock, owner, count)
  end
  redis.pcall('EXISTS', lock)
  return 1
end

local lib = library()
local fence_ttl, channel, lease = ARGV[5], ARGV[6], ARGV[9]

-- Returns whether the local waiter has the lock already, and gives it its lease.
local function next_has_lock()
  if not next_local or redis.pcall('HEXISTS', lock, next_local) ~= 1 then
    return false
  end
  if redis.call('PTTL', lock) < tonumber(lease) then
    redis.pcall('PEXPIRE', lock, lease)
  end
  return true
end

if released then
  token = lib.next_token(lock, fence_ttl, lib.least_token(ARGV[7]), token)
  if not token then
    return 1
  elseif lib.hand_off(channel, lock, token, first, nil, next_local) then
    if next_has_lock() then
      -- It was the first in the queue, by a request that overtook this one.
      redis.pcall('EXISTS', lock)
      return token
    elseif next_local and lib.join_queue(lock, next_local) > 0 then
      redis.pcall('EXISTS', lock)
      return ''
    end
  elseif next_local and type(redis.pcall('HSET', lock, next_local, '1')) == 'number' then
    if redis.pcall('PEXPIRE', lock, lease) == 1 then
      redis.pcall('EXISTS', lock)
      return token
    end
    redis.call('HDEL', lock, next_local)
  end
  return 1
end

if at_least ~= '0' and redis.call('HEXISTS', lock, owner) == 1 then
  -- The lock has no owner any more, so a late renewal or release finds none.
  redis.call('PEXPIRE', lock, at_least)
  redis.call('HSET', lock, 'kept', '1')
  redis.call('HDEL', lock, owner)
  if redis.pcall('INCR', fence) == 1 then
    redis.pcall('PEXPIRE', fence, fence_ttl)
  end
  local waiter = redis.pcall('ZRANGE', queue, '0', '0')[1]
  if waiter then
    lib.notify(channel, waiter, lock, '', at_least)
  end
  return 1
end

-- An owner that only waited leaves the queue. Only the first waiter learns that a lock became free without a release, so
-- the next one asks, and learns that it is the first.
local leaves = redis.pcall('ZRANGE', queue, '0', '0')[1] == owner
redis.pcall('ZREM', queue, owner)
local next_waiter = leaves and redis.pcall('ZRANGE', queue, '0', '0')[1]
if next_waiter then
  lib.notify(channel, next_waiter, lock, '', '0')
end
if next_has_lock() then
  return lib.last_token(lock) or 1
elseif next_local and type(redis.pcall('ZSCORE', queue, next_local)) == 'string' then
  return ''
end
local last, invalid = lib.last_token(lock)
local above = (last or 0) - tonumber(ARGV[4])
return above == 1 and 1 or (above > 1 or invalid) and 2 or 0
