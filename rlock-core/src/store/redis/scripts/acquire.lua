-- Acquires locks, all or none, or joins the wait queue of one that is taken.
-- KEYS  lock, lock, …
-- ARGV  lease (ms), time to keep the fence (ms), 1 to join the wait queue, channel prefix, `first` if
--       waiters come before other owners or `all` if they do not, the floor of new fences less a second or 0, owner, owner, …
-- Replies  '<fence>'             the only owner holds its lock, and no other waits for it
--          {1, fence, fence, …}  every owner holds its lock
--          {2, fence, fence, …}  the same, and others wait for one of the locks
--          {0, n, ttl, place, fence, fence, …}  another owner holds the n-th lock (from 0), for ttl ms (-1: no end).
--                               place: 2 for the first waiter, 1 behind others, 0 if the owner did not join the queue, 3
--                               if the lock admits the owner, which asks again because the waiters before it may be gone.
--                               Earlier grants up to these fences have ended; 0: the owner may have the lock. With `all`,
--                               the holder follows the fences
--          {-1}                  the owner was released, or a later one of its client, so no call waits for this late request
-- A list that begins with 1, 2 or 0 may end with `<n>/<number>`: another holder of the n-th lock (from 0) has this number
-- of permits, and the owner has another number.
-- An owner that holds its lock keeps its count, so a repeated request changes nothing.
local lib = library()
lib.floor = tonumber(ARGV[6])
local lease, fence_ttl, waits, channel = tonumber(ARGV[1]), ARGV[2], ARGV[3] == '1', ARGV[4]
local is_member = ARGV[5] == 'all'
local held, ttls, modes, fences, taken, handed_off = {}, {}, {}, {}, nil, nil

-- Hands a lock off to its waiters, and returns whether the owner that `asks` has to wait.
local function hand_off(lock, asks, shared)
  if is_member then
    redis.pcall('ZREM', lock .. ':queue', asks or '')
    return false
  end
  return lib.hand_off(channel, lock, fence_ttl, asks, asks and waits, shared)
end

-- Appends to a reply the number of permits of the holder whose lease ends first, if the owner has another number.
local function with_number(reply)
  for n, lock in ipairs(KEYS) do
    local mode, most = lib.mode(ARGV[n + 6])
    local holder = mode == 'permits' and redis.pcall('ZRANGE', lock .. ':shared', '0', '0')[1]
    local other, number = lib.mode(holder or '')
    if other == mode and number and number ~= most then
      reply[#reply + 1] = (n - 1) .. '/' .. number
      break
    end
  end
  return reply
end

-- First, an acquire that arrives after the release of its owner.
for n, lock in ipairs(KEYS) do
  local owner = ARGV[n + 6]
  local last = redis.pcall('GET', lock .. (is_member and '' or ':' .. string.sub(owner, 1, 36)) .. ':released')
  -- Either the last owner, without the `s`, or the last sequence of this client.
  if last == string.match(owner, '^[^s]+') or tonumber(string.match(owner, ':(%d+)')) <= (tonumber(last) or -1) then
    return {-1}
  end
end

-- Finds a lock that other owners hold and that does not admit this one.
for n, lock in ipairs(KEYS) do
  local owner = ARGV[n + 6]
  ttls[n], modes[n] = redis.call('PTTL', lock), lib.mode(owner)
  if modes[n] then
    -- Refused before anything is written, if the user lacks the permissions.
    redis.call('ZSCORE', lock .. ':shared', owner)
    redis.call('ZRANGE', lock .. ':shared', '0', '0')
    redis.call('HGETALL', lock)
  end
  if ttls[n] ~= -2 then
    if modes[n] then
      held[n] = lib.shares(lock, owner)
      if type(held[n]) == 'table' then
        return held[n]
      end
    else
      held[n] = redis.call('HGET', lock, owner)
    end
    if not held[n] and not (modes[n] and lib.lets_in(lock, owner)) then
      taken, ttls[n] = n, modes[n] and lib.rest(lock, owner) or ttls[n]
      break
    end
    ttls[n] = modes[n] and redis.call('PTTL', lock) or ttls[n]
  end
end

-- Finds a lock whose lease ended and whose waiters precede this owner. Sets the fences.
for n, lock in ipairs(taken and {} or KEYS) do
  if not held[n] and hand_off(lock, ARGV[n + 6], modes[n]) then
    taken, ttls[n], handed_off = n, lib.rest(lock, ARGV[n + 6]), true
    break
  end
  local refused
  if held[n] and not modes[n] then
    -- The fence of a hand-off, or of a grant whose reply was lost, is kept as that of a new grant.
    redis.pcall('PEXPIRE', lock .. ':fence', fence_ttl)
    fences[n], refused = lib.last_fence(lock)
  end
  if not fences[n] and not refused then
    fences[n], refused = lib.next_fence(lock, fence_ttl)
  end
  if refused then
    return refused
  end
end

-- Refuses the request: the owner may join the queue of the lock that is taken. Owners keep the others, because the request may be
-- a late copy, and a hold may have begun since.
if taken then
  for n = 1, taken - 1 do
    -- This request does not acquire the free locks, which may have other waiters.
    if ttls[n] == -2 and redis.pcall('EXISTS', KEYS[n]) == 0 then
      hand_off(KEYS[n])
    end
  end
  local lock, owner, place = KEYS[taken], ARGV[taken + 6], 0
  local queue = lock .. ':queue'
  if waits and lib.join(lock, owner) then
    local mode, most = lib.mode(owner)
    if mode == 'permits' and not handed_off then
      local first, number = lib.mode(redis.pcall('ZRANGE', queue, '0', '0')[1] or '')
      if first == mode and number < most then
        -- The first waiters go by this number.
        hand_off(lock, nil, true)
      end
    end
    place = redis.pcall('ZRANGE', queue, '0', '0')[1] == owner and 2 or 1
    if place == 1 and handed_off and modes[taken] and lib.lets_in(lock, owner)
      and (lib.kept_out(lock) == owner or redis.pcall('ZRANGE', queue, '-1', '-1')[1] == owner) then
      place = 3
    end
  end
  -- An owner that retains the lock releases it for the first waiter, or for the next attempt of an owner that is not in
  -- the queue. After a hand-off, the new owner knows from its grant that others wait.
  local asks = (place == 2 or place == 0) and not handed_off
  local entry = (asks or is_member) and redis.pcall('HGETALL', lock)[1]
  if asks then
    lib.ask_holders(channel, lock, entry, place == 0)
  end
  local refusal = {0, taken - 1, ttls[taken], place}
  for n, lock in ipairs(KEYS) do
    local owner = ARGV[n + 6]
    local has = lib.mode(owner) and lib.shares(lock, owner) or KEYS[2] and redis.pcall('HEXISTS', lock, owner) == 1
    -- A fence that has expired was smaller.
    refusal[n + 4] = has and 0 or lib.last_fence(lock) or lib.clock() - 1
  end
  if is_member then
    refusal[#refusal + 1] = entry or ''
  end
  return with_number(refusal)
end

-- Grants all locks.
local reply = 1
for n, lock in ipairs(KEYS) do
  local refused
  if modes[n] then
    refused = lib.grant(lock, ARGV[n + 6], lease)
    if redis.pcall('EXISTS', lock .. ':queue') == 1 then
      -- Others that waited share the lock.
      hand_off(lock, nil, true)
    end
  else
    refused = not held[n] and redis.pcall('HSET', lock, ARGV[n + 6], '1')
  end
  if type(refused) ~= 'table' and not modes[n] then
    -- Sent even if it changes nothing, so that a demoted master refuses the request.
    refused = redis.pcall('PEXPIRE', lock, ttls[n] < lease and ARGV[1] or ttls[n])
  end
  if type(refused) == 'table' then
    for i = 1, n do
      -- Undoes a grant of this request.
      if not held[i] and lib.leave(KEYS[i], ARGV[i + 6]) == 1 then
        hand_off(KEYS[i], nil, modes[i])
      end
    end
    return refused
  end
  if redis.pcall('EXISTS', lock, lock .. ':queue') == 2 then
    reply = 2
  end
end
return with_number({reply, unpack(fences)})
