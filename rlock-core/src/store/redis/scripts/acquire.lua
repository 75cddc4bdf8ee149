-- Gives locks to owners that want them once, all or none; or lets a holder count further entries.
-- KEYS  lock, fence, lock, fence, …
-- ARGV  lease (ms), count wanted, TTL of a fence (ms), owner, owner, …
-- Answers  {1, token, token, …}  every owner holds its lock with that count
--          {0, n, ttl}           another holds the n-th (from 0), for ttl ms (-1: without an end)
--          {-1}                  further entries wanted by an owner that holds nothing
-- The count is absolute, so a repeated request changes nothing. Everything that can fail is read
-- before the first write. The last command on each lock reads it, so that tracking sees foreign
-- changes.
local lease, count, fence_ttl = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local answer, locks = {1}, {}

-- An earlier copy of this request may have been granted, and lost one of several locks since.
local function give_back()
  for i = 1, #KEYS > 2 and count == '1' and #KEYS or 0, 2 do
    local lock, owner = KEYS[i], ARGV[(i + 1) / 2 + 3]
    if redis.pcall('HEXISTS', lock, owner) == 1 then
      redis.call('HDEL', lock, owner)
      redis.pcall('PUBLISH', lock .. ':released', '')
    end
  end
end

for i = 1, #KEYS, 2 do
  local n = (i + 1) / 2
  local lock, fence = KEYS[i], KEYS[i + 1]
  local ttl, held = redis.call('PTTL', lock), nil
  if ttl ~= -2 then
    held = redis.call('HGET', lock, ARGV[n + 3])
    if not held then
      give_back()
      return {0, n - 1, ttl}
    end
  elseif count ~= '1' then
    return {-1}
  end
  local last = redis.call('GET', fence)
  if last and not tonumber(last) then
    return redis.error_reply('WRONGTYPE ' .. fence .. ' is no fencing token')
  end
  locks[n] = {ttl = ttl, held = held, last = last}
end

-- A write that is refused after another took effect (an ACL may do that) undoes what was taken.
local function write(n, ...)
  local outcome = redis.pcall(...)
  if type(outcome) ~= 'table' or not outcome.err then
    return nil
  end
  for i = 1, n do
    if not locks[i].held then
      redis.pcall('HDEL', KEYS[2 * i - 1], ARGV[i + 3])
    end
  end
  return outcome
end

for n, state in ipairs(locks) do
  local lock, fence, owner = KEYS[2 * n - 1], KEYS[2 * n], ARGV[n + 3]
  local token, refused = state.last, nil
  if not (state.held and token) then
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    token = string.format('%.0f', math.max((tonumber(token) or 0) + 1, now))
    refused = write(n, 'SET', fence, token, 'PX', fence_ttl)
  end
  if not refused and state.held ~= count then
    refused = write(n, 'HSET', lock, owner, count)
  end
  if not refused and state.ttl < lease then
    refused = write(n, 'PEXPIRE', lock, lease)
  end
  if refused then
    return refused
  end
  redis.pcall('EXISTS', lock)
  answer[n + 1] = token
end
return answer
