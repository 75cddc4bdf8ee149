-- Gives locks to owners that want them once, all or none; or lets a holder count further entries.
-- KEYS  lock, fence, queue, lock, fence, queue, …
-- ARGV  lease (ms), count wanted, TTL of a fence (ms), 1 to stand in line, channel prefix, owner, owner, …
-- Answers  {1, token, token, …}  every owner holds its lock with that count
--          {0, n, ttl, in line}  another holds the n-th (from 0), for ttl ms (-1: without an end)
--          {-1}                  further entries wanted by an owner that holds nothing
-- The count is absolute, so a repeated request changes nothing. A write that is refused after another
-- took effect (an ACL may do that) undoes what was given. The last command on each lock reads it, so
-- that tracking sees foreign changes.
local lease, count, fence_ttl, channel = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[5]
local claims = #KEYS / 3
local answer, held, ttls, tokens, now = {1}, {}, {}, {}, nil

-- A lock that is no more this owner's goes to whoever is next.
local function give_back(n)
  local lock, queue = KEYS[3 * n - 2], KEYS[3 * n]
  if redis.pcall('HDEL', lock, ARGV[n + 5]) == 1 then
    now = now or micros()
    local token = next_token(KEYS[3 * n - 1], fence_ttl, now)
    if token then
      hand_off(lock, queue, channel, now, token)
    end
  end
end

for n = 1, claims do
  local lock, fence, queue, owner = KEYS[3 * n - 2], KEYS[3 * n - 1], KEYS[3 * n], ARGV[n + 5]
  local ttl = redis.call('PTTL', lock)
  local taken = false
  if ttl ~= -2 then
    held[n] = redis.call('HGET', lock, owner)
    taken = not held[n]
  elseif count ~= '1' then
    return {-1}
  else
    now = now or micros()
    local token, refused = next_token(fence, fence_ttl, now)
    if refused then
      return refused
    end
    -- Where a lock ended by its lease, those in line come first.
    taken = hand_off(lock, queue, channel, now, token, owner)
    tokens[n], ttl = token, taken and GRACE or ttl
  end
  ttls[n] = ttl
  if taken then
    -- One of several locks may be this owner's since it stood in line for it, or since an earlier
    -- copy of this request.
    for i = 1, claims > 1 and count == '1' and claims or 0 do
      give_back(i)
    end
    local in_line = ARGV[4] == '1' and stand_in_line(queue, owner, now or micros()) or 0
    return {0, n - 1, ttl, in_line}
  end
end

for n = 1, claims do
  local lock, fence, owner = KEYS[3 * n - 2], KEYS[3 * n - 1], ARGV[n + 5]
  local token, refused = tokens[n] or redis.call('GET', fence), nil
  if not token then
    token, refused = next_token(fence, fence_ttl, micros())
  end
  if not refused and held[n] ~= count then
    refused = redis.pcall('HSET', lock, owner, count)
    refused = type(refused) == 'table' and refused or nil
  end
  if not refused and ttls[n] < lease then
    refused = redis.pcall('PEXPIRE', lock, lease)
    refused = type(refused) == 'table' and refused or nil
  end
  if refused then
    for i = 1, n do
      if not held[i] then
        give_back(i)
      end
    end
    return refused
  end
  redis.pcall('EXISTS', lock)
  answer[n + 1] = token
end
return answer
