-- Keeps the queue of waiters, and hands a lock off to the first of them whose client listens (`hand_off`, `tell`).

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

-- Makes the holders release a lock that they retain. `entry`: the only owner, or the field that stands for the holders.
-- `tries`: the owner that asks does not wait.
function lib.ask_holders(channel, lock, entry, tries)
  local holders, what = {entry}, 'wanted'
  if entry == 'shared' then
    lib.purge(lock)
    -- Ends retentions. The calls of a holder continue to share the lock.
    what = tries and '' or what
    holders = redis.pcall('ZRANGE', lock .. ':shared', '0', lib.MOST_NOTIFIED - 1)
  elseif entry == 'permits' then
    -- Permits are never retained.
    holders = {}
  end
  for _, holder in ipairs(holders) do
    if string.sub(holder, 1, 4) ~= 'kept' then
      lib.tell_holder(channel, holder, lock, what, '0')
    end
  end
end

-- Adds an owner to the end of the wait queue, unless it is in the queue. Returns false if the server refuses that.
function lib.join(lock, owner)
  local queue = lock .. ':queue'
  local added = redis.pcall('ZADD', queue, 'NX', string.format('%.0f', lib.micros()), owner)
  redis.pcall('PEXPIRE', queue, lib.QUEUE_LIFETIME)
  return type(added) == 'number'
end

-- Notifies the client of a waiter as `tell_holder` does, and removes the waiter from the queue if its client certainly does
-- not listen. Returns whether the client listens, and whether the waiter was removed. Only this function notifies waiters,
-- so that no waiter stays behind one whose client is gone.
function lib.tell(channel, waiter, lock, what, ms)
  local receivers = lib.tell_holder(channel, waiter, lock, what, ms)
  return type(receivers) == 'number' and receivers > 0,
    receivers == 0 and redis.pcall('ZREM', lock .. ':queue', waiter) == 1
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
  if first and lib.micros() - since + after * 1000 > lib.LONGEST_SILENCE * 1000 then
    ask_from(channel, lock, '1', after + lib.GRACE)
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

-- Returns the largest number of permits that the first waiters name, or the owner that `joins` the queue, or nil. A waiter goes
-- by this number.
local function most_named(lock, joins)
  local waiters, most = redis.pcall('ZRANGE', lock .. ':queue', '0', lib.MOST_LET_IN), nil
  waiters[#waiters + 1] = joins
  for _, waiter in ipairs(waiters) do
    local mode, number = lib.mode(waiter)
    most = mode == 'permits' and math.max(most or 0, number) or most
  end
  return most, waiters
end

-- Returns whether the lock admits an owner, which goes by the largest number of permits that is named if it waits.
function lib.lets_in(lock, owner, joins)
  local admits, mode, number = lib.admits(lock, owner), lib.mode(owner)
  if admits or mode ~= 'permits' or not redis.pcall('ZSCORE', lock .. ':queue', owner) then
    return admits
  end
  local most = most_named(lock, joins)
  return most and most > number and lib.admits(lock, owner, most)
end

-- Returns the first waiter that the lock would admit if the head of the queue did not precede it. Looks at the next MOST_LET_IN
-- waiters.
function lib.kept_out(lock)
  local present, least, most, waiters = redis.pcall('HGETALL', lock)[1], math.huge, most_named(lock)
  for n, waiter in ipairs(waiters) do
    local mode, _, takes = lib.mode(waiter)
    if mode and mode == present and takes < least then
      if n > 1 and lib.admits(lock, waiter, most) then
        return waiter
      end
      least = takes
    end
  end
end

-- Checks whether the client of the first waiter is there, if the lock does not admit this waiter but would admit the owner
-- that `asks` or a later waiter. Removes a waiter whose client is gone, and returns true. Otherwise tells the later
-- waiter to ask again soon, because the client of the first one may be gone by then.
local function passes_over(channel, lock, first, asks)
  local enters = asks and lib.lets_in(lock, asks)
  local next = not enters and lib.kept_out(lock)
  if first == asks or not enters and not next then
    return false
  end
  local _, is_gone = lib.tell(channel, first, lock, '', lib.QUEUE_LIFETIME)
  while next and not is_gone and select(2, lib.tell(channel, next, lock, '', lib.BETWEEN_PROBES)) do
    next = lib.kept_out(lock)
  end
  return is_gone
end

-- Hands a free lock off to the first waiter whose client listens, or to all first waiters that admit each other, but at
-- most to MOST_LET_IN. Returns whether others precede the owner that `asks`, which gets no notification. `joins`: another owner
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
        local admits = first[1] and lib.lets_in(lock, first[1], joins and asks or nil)
        full = admits and served + #batch == lib.MOST_LET_IN
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
        local fence = lib.next_fence(lock, fence_ttl)
        refused = not fence or type(lib.grant(lock, first[1], lib.GRACE)) == 'table'
        if not refused then
          batch[#batch + 1] = {first[1], fence, first[2]}
          blocked = not lib.mode(first[1])
        end
      end
    until not first[1] or asked or blocked or refused
    local wanted = batch[1] and (joins or redis.pcall('EXISTS', queue) == 1) and 1 or 0
    for _, waiter in ipairs(batch) do
      if lib.tell(channel, waiter[1], lock, string.format('%.0f/%d', waiter[2], wanted), lib.GRACE) then
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
  if since and lib.micros() - since > lib.LONGEST_SILENCE * 1000 then
    ask_from(channel, lock, '0', lib.GRACE)
  end
  return blocked or (asks and not asked and (shared or since) and not lib.admits(lock, asks)) or false
end
