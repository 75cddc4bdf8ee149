-- Acquires locks, all or none. Or sets the counts of owners that hold their locks.
-- KEYS  lock, lock, …
-- ARGV  lease (ms), count wanted, time to keep the fence (ms), 1 to join the wait queue, channel prefix,
--       least token (see the library), owner, owner, …
-- Replies  {1, token, token, …}  every owner holds its lock with that count. Each token is the first of its block
--          {2, token, token, …}  the same, and others wait for one of the locks
--          {0, n, ttl, place, fence, fence, …}  another owner holds the n-th lock (from 0), for ttl ms (-1: no end).
--                               place: 2 for the first waiter, 1 behind others, 0 if the owner did not join the queue.
--                               Earlier grants up to these fences are void
--          {-1}                  the count is above 1, and an owner does not hold its lock
-- The count is absolute, so a repeated request changes nothing.
local lock, fence_ttl = KEYS[1], ARGV[3]

-- The usual case: one free lock without waiters, and a least token without a replication id.
local token, first, least = nil, nil, tonumber(ARGV[6])
if least and not KEYS[2] and ARGV[2] == '1' and redis.call('PTTL', lock) == -2 then
  local fence = lock .. ':fence'
  token = redis.pcall('INCRBY', fence, '17')
  if type(token) == 'number' and token >= least and token < 9007199254740992 then
    redis.call('PEXPIRE', fence, fence_ttl)
    first = redis.pcall('ZPOPMIN', lock .. ':queue')
    if not first[1] then
      local done = redis.pcall('HSET', lock, ARGV[7], '1')
      if done == 1 then
        done = redis.pcall('PEXPIRE', lock, ARGV[1])
        if done == 1 then
          redis.pcall('EXISTS', lock)
          return {1, token}
        end
        redis.call('HDEL', lock, ARGV[7])
      end
      return done
    end
  end
end

local lib = library()
local lease, count, waits, channel = tonumber(ARGV[1]), ARGV[2], ARGV[4] == '1', ARGV[5]
local promoted = nil
least, promoted = lib.least_token(ARGV[6])
if promoted then
  return promoted
end
local held, ttls, tokens, taken, handed_off = {}, {}, {}, nil, nil

for n, lock in ipairs(KEYS) do
  ttls[n] = redis.call('PTTL', lock)
  if ttls[n] ~= -2 then
    held[n] = redis.call('HGET', lock, ARGV[n + 6])
    if not held[n] then
      taken = n
      break
    end
    local refused
    tokens[n], refused = lib.last_token(lock)
    if refused then
      return refused
    end
  elseif count ~= '1' then
    return {-1}
  end
end

for n, lock in ipairs(taken and {} or KEYS) do
  if not tokens[n] then
    local refused
    tokens[n], refused = lib.next_token(lock, fence_ttl, least, token)
    if refused then
      return refused
    end
  end
  -- If the lease of the lock ended, its waiters precede this owner.
  if not held[n] and lib.hand_off(channel, lock, tokens[n], first, ARGV[n + 6], waits) then
    taken, ttls[n], handed_off = n, tonumber(lib.GRACE), true
    break
  end
end

-- Hands a free lock off to its next waiter.
local function pass_on(lock, token)
  token = token or lib.next_token(lock, fence_ttl, least)
  if token then
    lib.hand_off(channel, lock, token)
  end
end

-- Undoes a grant of this request, or a hand-off to the owner since it joined the queue.
local function give_back(n)
  if redis.pcall('HDEL', KEYS[n], ARGV[n + 6]) == 1 then
    pass_on(KEYS[n])
  end
end

if taken then
  for n, lock in ipairs(KEYS[2] and count == '1' and KEYS or {}) do
    give_back(n)
    -- This request does not acquire the free locks, which may have other waiters.
    if n < taken and ttls[n] == -2 and redis.pcall('EXISTS', lock .. ':queue') == 1 then
      pass_on(lock, tokens[n])
    end
  end
  local place = 0
  if waits then
    place = lib.join_queue(KEYS[taken], ARGV[taken + 6])
  end
  -- An owner that retains the lock releases it for the first waiter, or for the next attempt of an owner that is not in
  -- the queue. After a hand-off, the new owner knows from its grant that others wait.
  if (place == 2 or place == 0 and count == '1') and not handed_off then
    local holder = redis.pcall('HGETALL', KEYS[taken])[1]
    if holder and holder ~= 'kept' then
      lib.notify(channel, holder, KEYS[taken], 'wanted', '0')
    end
  end
  local refusal = {0, taken - 1, ttls[taken], place}
  for n, lock in ipairs(KEYS) do
    refusal[n + 4] = lib.last_token(lock) or 0
  end
  return refusal
end

for n, lock in ipairs(KEYS) do
  local refused
  if held[n] ~= count then
    refused = redis.pcall('HSET', lock, ARGV[n + 6], count)
  end
  if type(refused) ~= 'table' then
    -- Sent even if it changes nothing, so that a demoted master refuses the request.
    refused = redis.pcall('PEXPIRE', lock, ttls[n] < lease and ARGV[1] or ttls[n])
  end
  if type(refused) == 'table' then
    for i = 1, n do
      if not held[i] then
        give_back(i)
      end
    end
    return refused
  end
  redis.pcall('EXISTS', lock)
end
local reply = 1
for _, lock in ipairs(KEYS) do
  if redis.pcall('EXISTS', lock .. ':queue') == 1 then
    reply = 2
  end
end
return {reply, unpack(tokens)}
