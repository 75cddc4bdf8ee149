-- What several scripts share. This file precedes each of them.
--
-- The keys of a lock have one hash tag:
--   <lock>        a hash of the owner to the count of its entries
--   <lock>:fence  the last fence
--   <lock>:queue  the wait queue: a sorted set of owners, one for each process, by the server's time (µs) at joining
--
-- Only the locks are declared as keys. A server that tracks keys for a client remembers every declared key at each
-- read, and would report irrelevant changes. The last command on each lock reads it, so that tracking reports the
-- changes by other clients.
--
-- Each script is idempotent, and returns no error after a write that took effect. A full server refuses commands that
-- may take memory only until a script has written. Commands that an ACL may refuse after that are called by pcall.
-- Constant arguments are strings, because the server formats each number with printf.

-- Fences are below 2^46, so that tokens stay below 2^53.
local TOO_LARGE = 70368744177664

local time
-- Returns the server's time (µs).
local function micros()
  time = time or redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Sets the next fence of a lock, and returns it, or nil and an error. It is the server's time in units of 64 µs, but
-- larger than the last fence. With `least`, it is at least that. A last fence that is not below `least` stays, and the
-- function returns nil.
local function next_fence(lock, ttl, least)
  local key, fence = lock .. ':fence', math.max(math.floor(micros() / 64), least or 0)
  local last = redis.pcall('SET', key, string.format('%.0f', fence), 'PX', ttl, 'GET')
  if type(last) == 'table' then
    local is_foreign = string.find(last.err, 'WRONGTYPE', 1, true)
    return nil, is_foreign and redis.error_reply('WRONGTYPE ' .. key .. ' is not a fence; delete it') or last
  end
  last = tonumber(last)
  if last and last >= (least or fence) and last < TOO_LARGE - 1 then
    fence = least and last or last + 1
    redis.pcall('SET', key, string.format('%.0f', fence), 'PX', ttl)
    return not least and fence or nil
  end
  return fence
end

-- Returns the shared functions for uncommon cases, because each function costs time to create.
local function library()
  -- The grace period (ms): a lock is reserved for a waiter that has not confirmed its wait.
  local GRACE = '1000'
  -- A waiter that was silent for longer than this (ms) may be dead.
  local SILENT = 50
  local lib = {GRACE = GRACE}

  -- Notifies the client of an owner about a lock. Returns whether the client listens. `what` and `ms` are one of:
  --   `<fence>/<1 if others wait>` and the lease of a grant
  --   `wanted` and 0
  --   an empty string and the time after which to ask again
  function lib.notify(channel, owner, lock, what, ms)
    local message = owner .. ' ' .. what .. ' ' .. ms .. ' ' .. lock
    -- Not replicated: the script passes over a client that listens at a replica, so it must not receive the grant.
    redis.set_repl(redis.REPL_NONE)
    local receivers = redis.pcall('PUBLISH', channel .. string.sub(owner, 1, 36), message)
    redis.set_repl(redis.REPL_ALL)
    return type(receivers) == 'number' and receivers > 0
  end

  -- Hands a free lock off to the first waiter whose client listens, and returns whether there is one. `asks` is the
  -- owner of this request, which gets no notification. With `joins`, another owner joins the queue after this. A write
  -- that the server refuses leaves the lock free.
  function lib.hand_off(channel, lock, fence_ttl, asks, joins)
    local queue = lock .. ':queue'
    local first = redis.pcall('ZPOPMIN', queue)
    while first[1] and first[1] ~= asks do
      local owner, fence = first[1], next_fence(lock, fence_ttl)
      if not fence or type(redis.pcall('HSET', lock, owner, '1')) ~= 'number' then
        return false
      end
      local given = redis.pcall('PEXPIRE', lock, GRACE) == 1
      local wanted = given and (joins or redis.pcall('EXISTS', queue) == 1) and 1 or 0
      if given and lib.notify(channel, owner, lock, string.format('%.0f/%d', fence, wanted), GRACE) then
        -- The new owner may be dead, so the next waiter retries after the grace period. The next waiter may be dead,
        -- too, so the last waiter retries as well: it was active most recently.
        if micros() - first[2] > SILENT * 1000 then
          local second = redis.pcall('ZRANGE', queue, '0', '0')[1]
          local last = redis.pcall('ZRANGE', queue, '-1', '-1')[1]
          if second then
            lib.notify(channel, second, lock, '', GRACE)
          end
          if last ~= second then
            lib.notify(channel, last, lock, '', GRACE)
          end
        end
        return true
      end
      redis.call('HDEL', lock, owner)
      first = redis.pcall('ZPOPMIN', queue)
    end
    return false
  end

  return lib
end

