-- Gives each of several locks to an owner that wants it once, each by itself, where that is simple: the
-- lock is free, and nobody waits for it. Leaves all others alone.
-- KEYS  lock, lock, …
-- ARGV  time to keep fences beyond a lease (ms), least token, owner, lease (ms), owner, lease (ms), …
-- Answers  for each the token, or 0 for a lock that is to be asked for by itself
-- Many for the price of fewer: a script costs the server about as much as three commands in it, and one
-- EXISTS reads all keys. The last command reads the locks, so that tracking sees foreign changes.
local queues = {}
for n, lock in ipairs(KEYS) do
  queues[n] = lock .. ':queue'
end
local all_free = redis.call('EXISTS', unpack(KEYS)) + redis.call('EXISTS', unpack(queues)) == 0

-- The first token of a key: the time (µs), which is more than any from before.
local now
local floor = tonumber(ARGV[2])
local function begin_anew(fence, ttl)
  now = now or redis.pcall('TIME')
  local token = now[1] and math.max(floor, now[1] * 1000000 + now[2])
  if token and redis.pcall('SET', fence, string.format('%.0f', token), 'PX', ttl).ok then
    return token
  end
  -- Whoever asked may never do so by itself, so this is not to stay.
  redis.pcall('PEXPIRE', fence, ttl)
end

local given, answers = {}, {}
-- Tokens are returned as text, because the server formats each number with printf.
local fence_ttl, of_lease
for n, lock in ipairs(KEYS) do
  local owner, lease = ARGV[2 * n + 1], ARGV[2 * n + 2]
  local free = all_free and not given[lock]
  answers[n] = 0
  if lease ~= of_lease then
    fence_ttl, of_lease = string.format('%.0f', ARGV[1] + lease), lease
  end
  if free or redis.pcall('EXISTS', lock, queues[n]) == 0 then
    local fence = lock .. ':fence'
    local token = redis.pcall('INCRBY', fence, '17')
    if type(token) == 'number' and (token >= 9007199254740992 or token < 17) then
      -- An invalid token: the request for this lock alone returns the error.
      redis.pcall('INCRBY', fence, '-17')
      token = nil
    elseif type(token) == 'number' and token < floor then
      -- Counted from nothing, or from what an older copy of the data remembers.
      token = begin_anew(fence, fence_ttl)
    end
    if type(token) == 'number' and redis.pcall('HSET', lock, owner, '1') == 1 then
      if redis.pcall('PEXPIRE', lock, lease) == 1 then
        redis.pcall('PEXPIRE', fence, fence_ttl)
        given[lock] = true
        answers[n] = token
      else
        redis.pcall('HDEL', lock, owner)
      end
    end
  end
end
redis.pcall('EXISTS', unpack(KEYS))
return answers
