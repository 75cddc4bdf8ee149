--!df flags=allow-undeclared-keys
-- What several scripts share. This file precedes each of them.
--
-- The keys of a lock have one hash tag:
--   <lock>         a hash of the owner to the count of its entries; or of `shared` or `permits` to 1, until the last lease
--                  of the holders ends
--   <lock>:shared  the holders of a shared lock or of permits: a sorted set of owners by the end of their leases (ms)
--   <lock>:fence   the last fence
--   <lock>:queue   the wait queue: a sorted set of owners, one for each client, by the server's time (µs) at joining
--   <lock>:released  at a member of a quorum, the owner whose lock was released last, without the `s`
-- The last character of an owner is a digit, `s` if it shares the lock, or `p` if it has one of `.<number>p` permits.
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
-- One second in units of fences.
local SECOND = 15625

-- A request's floor: the least next fence of a lock, if the server's clock is behind it by more than a second. Without that
-- second, clients with quick replies would make fences run ahead of the clock.
local floor = 0

local time
-- Returns the server's time (µs).
local function micros()
  time = time or redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Sets the next fence of a lock, and returns it, or nil and an error. It is the server's time in units of 64 µs, but
-- larger than the last fence, and not below the floor. With `least`, it is at least that instead of the floor, or just that
-- if `is_exact`. A last fence that is not below `least` stays, and the function returns nil.
local function next_fence(lock, ttl, least, is_exact)
  local key, now = lock .. ':fence', is_exact and 0 or math.floor(micros() / 64)
  local fence = math.max(now, least or floor > now + SECOND and floor or 0)
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
  -- The lifetime of a wait queue that no owner joins (ms). Each waiter asks sooner.
  local QUEUE = '20000'
  -- A waiter that was silent for longer than this (ms) may be dead.
  local SILENT = 50
  -- The most waiters that one hand-off serves.
  local MOST = 64
  -- How often a waiter asks again if only earlier waiters keep it out (ms), because their clients may be gone.
  local BETWEEN_PROBES = '900'
  local lib = {GRACE = GRACE, QUEUE = QUEUE}

  -- Notifies the client of a holder about a lock, and returns the number of receivers, or an error. `what` and `ms` are one
  -- of:
  --   `<fence>/<1 if others wait>` and the lease of a grant
  --   `wanted` and 0
  --   an empty string and the time after which to ask again, or to end a retention
  function lib.tell_holder(channel, owner, lock, what, ms)
    local message = owner .. ' ' .. what .. ' ' .. ms .. ' ' .. lock
    -- Not replicated: the script passes over a client that listens at a replica, so it must not receive the grant.
    redis.set_repl(redis.REPL_NONE)
    local receivers = redis.pcall('PUBLISH', channel .. string.sub(owner, 1, 36), message)
    redis.set_repl(redis.REPL_ALL)
    return receivers
  end

  -- Notifies the client of a waiter in the same way. Removes the waiter from the queue if its client certainly does not
  -- listen. Returns whether the client listens, and whether the waiter was removed. Only this function notifies waiters,
  -- so that no waiter stays behind one whose client is gone.
  function lib.tell(channel, waiter, lock, what, ms)
    local receivers = lib.tell_holder(channel, waiter, lock, what, ms)
    return type(receivers) == 'number' and receivers > 0,
      receivers == 0 and redis.pcall('ZREM', lock .. ':queue', waiter) == 1
  end

  -- Returns the field that stands for the holders in the mode of an owner, and how many there may be; nil if it is
  -- exclusive.
  function lib.mode(owner)
    local last = string.sub(owner, -1)
    if last == 's' then
      return 'shared', math.huge
    elseif last == 'p' then
      return 'permits', tonumber(string.match(owner, '%.(%d+)p$'))
    end
  end

  -- Returns whether a member of a quorum released this owner last. A shared owner may have been an exclusive one, and was
  -- released as either.
  function lib.was_released(lock, owner)
    return redis.pcall('GET', lock .. ':released') == string.match(owner, '^[^s]+')
  end

  -- Returns the server's time (ms).
  local function millis()
    return math.floor(micros() / 1000)
  end

  -- Sets the TTL of a lock with several holders: the last lease of them. Without holders, the lock is free.
  local function keep(lock, mode)
    local last = redis.pcall('ZRANGE', lock .. ':shared', '-1', '-1', 'WITHSCORES')
    if last.err then
      return last
    elseif last[2] then
      local ttl = string.format('%.0f', last[2] - millis())
      redis.pcall('PEXPIRE', lock .. ':shared', ttl)
      return redis.pcall('PEXPIRE', lock, ttl)
    end
    return redis.pcall('HDEL', lock, mode)
  end
  lib.keep = keep

  -- Removes the holders whose leases ended.
  function lib.purge(lock)
    local shared, now = lock .. ':shared', string.format('%.0f', millis())
    repeat
      local ended = redis.pcall('ZRANGE', shared, '-inf', now, 'BYSCORE', 'LIMIT', '0', '1000')
      local removed = ended[1] and redis.pcall('ZREM', shared, unpack(ended))
    until not ended[1000] or type(removed) ~= 'number'
  end

  -- Returns whether an owner that is not exclusive has its lease, or an error if the server refuses a write. The owner
  -- may have had the exclusive lock before: then it shares the lock from now on.
  function lib.shares(lock, owner)
    local mode, shared, former = lib.mode(owner), lock .. ':shared', string.sub(owner, 1, -2)
    local ends = redis.pcall('HGET', lock, mode)
    if type(ends) == 'string' then
      ends = redis.pcall('ZSCORE', shared, owner)
    end
    if type(ends) == 'string' then
      return tonumber(ends) > millis()
    elseif type(ends) == 'table' then
      return ends
    elseif mode ~= 'shared' or type(redis.pcall('HGET', lock, former)) ~= 'string' then
      return false
    end
    local ttl = redis.call('PTTL', lock)
    -- Whatever the server refuses, the lock keeps a holder and a TTL.
    ttl = ttl > 0 and ttl or GRACE
    redis.pcall('PEXPIRE', lock, ttl)
    redis.pcall('PEXPIRE', shared, '0')
    local refused = redis.pcall('ZADD', shared, string.format('%.0f', millis() + ttl), owner)
    if type(refused) == 'table' then
      return refused
    end
    refused = redis.pcall('HSET', lock, mode, '1')
    if type(refused) == 'table' then
      return refused
    end
    redis.pcall('HDEL', lock, former)
    keep(lock, mode)
    return true
  end

  -- Returns whether an owner may hold a lock together with the other holders.
  function lib.admits(lock, owner)
    local entry, mode, most = redis.pcall('HGETALL', lock), lib.mode(owner)
    local present = entry[1]
    if present == 'shared' or present == 'permits' then
      lib.purge(lock)
      local first = redis.pcall('ZRANGE', lock .. ':shared', '0', '0')
      if not first[1] and not first.err then
        return redis.pcall('HDEL', lock, present) == 1
      end
      local last = mode == 'permits' and string.format('%.0f', most - 1)
      return mode == present and not (last and redis.pcall('ZRANGE', lock .. ':shared', last, last)[1])
    end
    return not present and not entry.err
  end

  -- Gives an owner a lock that admits it, for this time (ms). A shared lease only grows. Returns an error if the server
  -- refuses that.
  function lib.grant(lock, owner, ttl)
    local mode, refused = lib.mode(owner), nil
    if not mode then
      refused = redis.pcall('HSET', lock, owner, '1')
      return type(refused) == 'table' and refused or redis.pcall('PEXPIRE', lock, ttl)
    end
    local shared, ends = lock .. ':shared', millis() + ttl
    local added = redis.pcall('HSET', lock, mode, '1')
    if type(added) == 'table' then
      return added
    end
    local is_new = added == 1
    if is_new then
      redis.pcall('PEXPIRE', lock, ttl)
      -- Removes the remains of a deleted lock.
      redis.pcall('PEXPIRE', shared, '0')
    end
    local before = redis.pcall('ZSCORE', shared, owner)
    if type(before) == 'string' and tonumber(before) > ends then
      ends = tonumber(before)
    end
    refused = redis.pcall('ZADD', shared, string.format('%.0f', ends), owner)
    if type(refused) == 'table' and is_new then
      redis.pcall('HDEL', lock, mode)
    end
    local kept = keep(lock, mode)
    return type(refused) == 'table' and refused or kept
  end

  -- Renews the lease of an owner that is not exclusive. Returns an error if the server refuses that.
  function lib.extend(lock, owner, ttl)
    -- A write that takes no memory precedes the other, which then does not fail on a full server.
    redis.pcall('PEXPIRE', lock, ttl)
    local refused = redis.pcall('ZADD', lock .. ':shared', string.format('%.0f', millis() + ttl), owner)
    local kept = keep(lock, lib.mode(owner))
    return type(refused) == 'table' and refused or kept
  end

  -- Takes a lock from an owner, and returns 1 if the owner held it. A lock that is shared is kept for `min_hold` (ms).
  function lib.leave(lock, owner, min_hold)
    local mode, shared = lib.mode(owner), lock .. ':shared'
    if not mode then
      return redis.pcall('HDEL', lock, owner)
    end
    if not min_hold and mode == 'shared' and redis.pcall('HDEL', lock, string.sub(owner, 1, -2)) == 1 then
      return 1
    end
    local held = lib.shares(lock, owner)
    if held ~= true then
      return held or 0
    end
    -- In a slot that migrates, a set that is empty cannot be read, nor be created again.
    local is_last = not min_hold and #redis.pcall('ZRANGE', shared, '0', '1') == 1
    if min_hold then
      -- A write that takes no memory precedes the other, as in `extend`.
      redis.pcall('PEXPIRE', lock, min_hold)
      redis.pcall('ZADD', shared, string.format('%.0f', millis() + min_hold), 'kept:' .. owner)
    end
    local removed = redis.pcall('ZREM', shared, owner)
    if is_last and removed == 1 then
      redis.pcall('HDEL', lock, mode)
    elseif removed == 1 then
      keep(lock, mode)
    end
    return removed
  end

  -- Makes the waiter at this place of the queue ask again after a time (ms), unless it is `but`. If its client is gone,
  -- notifies the waiter that moves up. Returns the last waiter looked at, and since when it has waited.
  local function ask(channel, lock, place, after, but)
    local waiter, is_gone
    repeat
      waiter = redis.pcall('ZRANGE', lock .. ':queue', place, place, 'WITHSCORES')
      is_gone = waiter[1] and waiter[1] ~= but and select(2, lib.tell(channel, waiter[1], lock, '', after))
    until not is_gone
    return waiter[1], waiter[2]
  end

  -- Makes the waiter at this place of the queue, and the last one behind it, ask again after a time (ms).
  local function ask_from(channel, lock, place, after)
    local next = ask(channel, lock, place, after)
    if next then
      ask(channel, lock, '-1', after, next)
    end
  end

  -- Makes the first waiter ask again after a time (ms). It may be dead by then, so the second and the last waiter ask after
  -- a further grace period.
  function lib.ask_first(channel, lock, after)
    local first, since = ask(channel, lock, '0', after)
    if first and micros() - since + after * 1000 > SILENT * 1000 then
      ask_from(channel, lock, '1', after + GRACE)
    end
  end

  -- Makes the first waiters whose clients listen ask again after a time (ms).
  function lib.ask_all(channel, lock, after)
    local heard = 0
    repeat
      local waiters = redis.pcall('ZPOPMIN', lock .. ':queue', '100')
      for n = 1, #waiters, 2 do
        heard = heard + (lib.tell(channel, waiters[n], lock, '', after) and 1 or 0)
      end
    until heard > 0 or not waiters[1]
  end

  -- Returns the first waiter that the lock would admit if the head of the queue did not precede it. Looks at the next MOST
  -- waiters.
  function lib.kept_out(lock)
    local present, most = redis.pcall('HGETALL', lock)[1], 0
    for n, waiter in ipairs(redis.pcall('ZRANGE', lock .. ':queue', '0', MOST)) do
      local mode, permits = lib.mode(waiter)
      if mode and mode == present and permits > most then
        if n > 1 and lib.admits(lock, waiter) then
          return waiter
        end
        most = permits
      end
    end
  end

  -- Checks whether the client of the first waiter is there, if the lock does not admit this waiter but would admit the owner
  -- that `asks` or a later waiter. Removes a waiter whose client is gone, and returns true. Otherwise tells the later
  -- waiter to ask again soon, because the client of the first one may be gone by then.
  local function passes_over(channel, lock, first, asks)
    local enters = asks and lib.admits(lock, asks)
    local next = not enters and lib.kept_out(lock)
    if first == asks or not enters and not next then
      return false
    end
    local _, is_gone = lib.tell(channel, first, lock, '', QUEUE)
    while next and not is_gone and select(2, lib.tell(channel, next, lock, '', BETWEEN_PROBES)) do
      next = lib.kept_out(lock)
    end
    return is_gone
  end

  -- Returns how long a lock is not free for an owner (ms): a permit, until the first lease ends.
  function lib.rest(lock, owner)
    local mode = lib.mode(owner)
    local first = mode == 'permits' and redis.pcall('HGET', lock, mode)
      and redis.pcall('ZRANGE', lock .. ':shared', '0', '0', 'WITHSCORES')
    return first and first[2] and first[2] - millis() or redis.call('PTTL', lock)
  end

  -- Hands a free lock off to the first waiter whose client listens, or to all first waiters that admit each other, but at
  -- most to MOST. Returns whether others precede the owner that `asks`, which gets no notification. `joins`: another owner
  -- joins the queue after this. `shared`: the lock may have holders. A write that the server refuses ends the hand-off.
  function lib.hand_off(channel, lock, fence_ttl, asks, joins, shared)
    local queue, since, served, asked, refused = lock .. ':queue', nil, 0, false, false
    local deaf, full, blocked
    repeat
      local batch, first, passed = {}, nil, nil
      deaf, full, blocked = false, false, false
      repeat
        if shared or batch[1] then
          first = redis.pcall('ZRANGE', queue, '0', '0', 'WITHSCORES')
          local admits = first[1] and lib.admits(lock, first[1])
          full = admits and served + #batch == MOST
          passed = first[1] and not admits and passes_over(channel, lock, first[1], asks)
          blocked = first[1] and not passed and (full or not admits)
          if admits and not full then
            refused = type(redis.pcall('ZREM', queue, first[1])) ~= 'number'
          end
        else
          first = redis.pcall('ZPOPMIN', queue)
        end
        asked = first[1] == asks and not blocked
        if first[1] and not (asked or blocked or passed or refused) then
          local fence = next_fence(lock, fence_ttl)
          refused = not fence or type(lib.grant(lock, first[1], GRACE)) == 'table'
          if not refused then
            batch[#batch + 1] = {first[1], fence, first[2]}
            blocked = not lib.mode(first[1])
          end
        end
      until not first[1] or asked or blocked or refused
      local wanted = batch[1] and (joins or redis.pcall('EXISTS', queue) == 1) and 1 or 0
      for _, waiter in ipairs(batch) do
        if lib.tell(channel, waiter[1], lock, string.format('%.0f/%d', waiter[2], wanted), GRACE) then
          since, served = math.min(since or math.huge, waiter[3]), served + 1
        else
          lib.leave(lock, waiter[1])
          deaf = true
        end
      end
      shared = shared or since
    until not deaf or asked or refused
    if full and not deaf then
      ask(channel, lock, '0', '0')
    end
    -- The new owner may be dead, so the next waiter retries after the grace period. The next waiter may be dead, too, so
    -- the last waiter retries as well: it was active most recently.
    if since and micros() - since > SILENT * 1000 then
      ask_from(channel, lock, '0', GRACE)
    end
    return blocked or (asks and (shared or since) and not lib.admits(lock, asks)) or false
  end

  return lib
end

