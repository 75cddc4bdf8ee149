-- Gives the lock to an owner that wants it once, or lets its holder count further entries.
-- KEYS  lock, fence
-- ARGV  owner, lease (ms), count wanted, TTL of the fence (ms)
-- Answers  {1, token}  the owner holds the lock with that count
--          {0, ttl}    another holds it, for ttl ms (-1: without an end)
--          {-1, 0}     further entries wanted by an owner that holds nothing
-- The count is absolute, so a repeated request changes nothing. Everything that can fail is read
-- before the first write. The last command reads the lock, so that tracking sees foreign changes.
local lock, fence = KEYS[1], KEYS[2]
local owner, lease, count = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local ttl = redis.call('PTTL', lock)

local function token_after(last)
  if last and not tonumber(last) then
    return nil
  end
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  return string.format('%.0f', math.max((tonumber(last) or 0) + 1, now))
end

if ttl == -2 then
  if count ~= '1' then
    return {-1, 0}
  end
  local token = token_after(redis.call('GET', fence))
  if not token then
    return redis.error_reply('WRONGTYPE ' .. fence .. ' is no fencing token')
  end
  redis.call('HSET', lock, owner, count)
  redis.call('PEXPIRE', lock, lease)
  redis.call('SET', fence, token, 'PX', ARGV[4])
  redis.call('EXISTS', lock)
  return {1, token}
end

local held = redis.call('HGET', lock, owner)
if not held then
  return {0, ttl}
end
local token = redis.call('GET', fence)
if not token then
  token = token_after(nil)
  redis.call('SET', fence, token, 'PX', ARGV[4])
end
if held ~= count then
  redis.call('HSET', lock, owner, count)
end
if ttl < lease then
  redis.call('PEXPIRE', lock, lease)
end
redis.call('EXISTS', lock)
return {1, token}
