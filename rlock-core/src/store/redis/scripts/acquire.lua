-- Gives locks to owners that want them once, all or none; or lets a holder count further entries.
-- KEYS  lock, lock, …
-- ARGV  lease (ms), count wanted, TTL of a fence (ms), 1 to stand in line, channel prefix, owner, owner, …
-- Answers  {1, token, token, …}  every owner holds its lock with that count
--          {0, n, ttl, in line}  another holds the n-th (from 0), for ttl ms (-1: without an end)
--          {-1}                  further entries wanted by an owner that holds nothing
-- The count is absolute, so a repeated request changes nothing. A write that is refused after another
-- took effect (an ACL may do that) undoes what was given. The last command on each lock reads it, so
-- that tracking sees foreign changes.
local lease, count, fence_ttl, channel = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[5]
local held, ttls, tokens, taken = {}, {}, {}, nil

for n, lock in ipairs(KEYS) do
  local ttl = redis.call('PTTL', lock)
  if ttl ~= -2 then
    held[n] = redis.call('HGET', lock, ARGV[n + 5])
    tokens[n] = held[n] and redis.call('GET', lock .. ':fence')
    if not held[n] then
      taken = n
    end
  elseif count ~= '1' then
    return {-1}
  end
  ttls[n] = ttl
  if taken then
    break
  end
end

for n, lock in ipairs(taken and {} or KEYS) do
  if not tokens[n] then
    local token, refused = next_token(lock)
    if refused then
      return refused
    end
    tokens[n] = token
    redis.call('SET', lock .. ':fence', token, 'PX', fence_ttl)
  end
  if not held[n] then
    -- Where a lock ended by its lease, those in line come first.
    local first = redis.pcall('ZPOPMIN', lock .. ':queue')
    if first[1] and waiters(channel)(lock, tokens[n], first, ARGV[n + 5]) then
      taken, ttls[n] = n, GRACE
      break
    end
  end
end

-- What was given, or kept for one of several locks since it stood in line, goes to whoever is next.
local function give_back(n)
  local lock = KEYS[n]
  if redis.pcall('HDEL', lock, ARGV[n + 5]) == 1 then
    local token = next_token(lock)
    if token and redis.pcall('SET', lock .. ':fence', token, 'PX', fence_ttl).ok then
      waiters(channel)(lock, token, redis.pcall('ZPOPMIN', lock .. ':queue'))
    end
  end
end

if taken then
  for n in ipairs(KEYS[2] and count == '1' and KEYS or {}) do
    give_back(n)
  end
  local in_line = 0
  if ARGV[4] == '1' then
    local _, stand_in_line = waiters(channel)
    in_line = stand_in_line(KEYS[taken], ARGV[taken + 5])
  end
  return {0, taken - 1, ttls[taken], in_line}
end

for n, lock in ipairs(KEYS) do
  local refused
  if held[n] ~= count then
    refused = redis.pcall('HSET', lock, ARGV[n + 5], count)
  end
  if type(refused) ~= 'table' and ttls[n] < lease then
    refused = redis.pcall('PEXPIRE', lock, lease)
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
return {1, unpack(tokens)}
