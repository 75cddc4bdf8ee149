local lease, count, fence_ttl, channel, floor = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[5], tonumber(ARGV[6])
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
    tokens[n], refused = last_token(lock)
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
    tokens[n], refused = next_token(lock, fence_ttl, floor, token)
    if refused then
      return refused
    end
  end
  if not held[n] then
    -- Where a lock ended by its lease, those in line come first.
    first = first or redis.pcall('ZPOPMIN', lock .. ':queue')
    if first[1] and waiters(channel)(lock, tokens[n], first, ARGV[n + 6], ARGV[4] == '1') then
      taken, ttls[n], handed_off = n, tonumber(GRACE), true
      break
    end
    first = nil
  end
end

-- What was given, or kept for one of several locks since it stood in line, goes to whoever is next.
local function give_back(n)
  local lock = KEYS[n]
  if redis.pcall('HDEL', lock, ARGV[n + 6]) == 1 then
    local next = next_token(lock, fence_ttl, floor)
    if next then
      waiters(channel)(lock, next, redis.pcall('ZPOPMIN', lock .. ':queue'))
    end
  end
end

if taken then
  for n, lock in ipairs(KEYS[2] and count == '1' and KEYS or {}) do
    give_back(n)
    -- One that is free is not taken either, and may have somebody else in line.
    if n < taken and ttls[n] == -2 and redis.pcall('EXISTS', lock .. ':queue') == 1 then
      local next = tokens[n] or next_token(lock, fence_ttl, floor)
      if next then
        waiters(channel)(lock, next, redis.pcall('ZPOPMIN', lock .. ':queue'))
      end
    end
  end
  local in_line = 0
  if ARGV[4] == '1' then
    local _, stand_in_line, tell = waiters(channel)
    in_line = stand_in_line(KEYS[taken], ARGV[taken + 6])
    -- Who was given the lock just now is told so by that.
    if in_line == 2 and not handed_off then
      local holder = redis.pcall('HGETALL', KEYS[taken])[1]
      if holder and holder ~= 'kept' then
        tell(holder, KEYS[taken], 'wanted', '0')
      end
    end
  end
  local refusal = {0, taken - 1, ttls[taken], in_line}
  for n, lock in ipairs(KEYS) do
    refusal[n + 4] = last_token(lock) or 0
  end
  return refusal
end

for n, lock in ipairs(KEYS) do
  local refused
  if held[n] ~= count then
    refused = redis.pcall('HSET', lock, ARGV[n + 6], count)
  end
  if type(refused) ~= 'table' then
    -- Also where it changes nothing: a replica that was the master a moment ago is to refuse.
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
local answer = 1
for _, lock in ipairs(KEYS) do
  if redis.pcall('EXISTS', lock .. ':queue') == 1 then
    answer = 2
  end
end
return {answer, unpack(tokens)}
