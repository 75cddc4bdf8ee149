-- Lets time pass on a server: moves the deadlines of all locks into the past.
-- KEYS  lock, lock, …
-- ARGV  ms
local by = tonumber(ARGV[1])

local function sooner(key)
  local ttl = redis.call('PTTL', key)
  if ttl >= 0 and ttl <= by then
    redis.call('DEL', key)
  elseif ttl > 0 then
    redis.call('PEXPIRE', key, ttl - by)
  end
end

for _, lock in ipairs(KEYS) do
  sooner(lock)
  sooner(lock .. ':queue')
  sooner(lock .. ':released')
  for _, released in ipairs(redis.call('KEYS', lock .. ':*:released')) do
    sooner(released)
  end
  for _, owner in ipairs(redis.call('ZRANGE', lock .. ':queue', 0, -1)) do
    redis.call('ZINCRBY', lock .. ':queue', -1000 * by, owner)
  end
  sooner(lock .. ':shared')
  for _, owner in ipairs(redis.call('ZRANGE', lock .. ':shared', 0, -1)) do
    redis.call('ZINCRBY', lock .. ':shared', -by, owner)
  end
end
