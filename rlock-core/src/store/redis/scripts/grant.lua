-- Begins acquire.lua and release.lua: how a lock becomes an owner's.
-- `queue` holds the owners that wait, one for each process, by the server time at which they came.

-- How long a lock is a waiter's that has not yet said that it is there (ms).
local GRACE = 1000
-- A queue that nobody renews vanishes; whoever waits asks again sooner than this (ms).
local QUEUE_TTL = 20000

local function micros()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The next fencing token: more than the last, and than any from before a flush.
-- SET with GET, because a read would have the server track the key for this client.
local function next_token(fence, ttl, now)
  local token = string.format('%.0f', now)
  local last = redis.pcall('SET', fence, token, 'PX', ttl, 'GET')
  if not last then
    return token
  elseif type(last) == 'table' then
    return nil, last
  end
  local number = tonumber(last)
  if not number then
    redis.call('SET', fence, last)
    return nil, redis.error_reply('WRONGTYPE ' .. fence .. ' is no fencing token')
  end
  if number >= now then
    token = string.format('%.0f', number + 1)
    redis.call('SET', fence, token, 'PX', ttl)
  end
  return token
end

-- Tells a waiter something of its lock: a token and for how long the lock is its own; without a
-- token, when to ask again. Answers whether its client listens.
local function tell(channel, owner, lock, token, ms)
  local heard = redis.pcall('PUBLISH', channel .. string.sub(owner, 1, 36),
    owner .. ' ' .. token .. ' ' .. ms .. ' ' .. lock)
  return type(heard) == 'number' and heard > 0
end

-- Gives a free lock to the first in the queue whose client listens; `asks` takes it for itself when
-- it comes to it. Answers whether it is another's now. What is refused, by an ACL say, leaves the
-- lock free.
local function hand_off(lock, queue, channel, now, token, asks)
  local first = redis.pcall('ZPOPMIN', queue)
  while first[1] and first[1] ~= asks do
    local owner = first[1]
    if type(redis.pcall('HSET', lock, owner, 1)) ~= 'number' then
      return false
    end
    if redis.pcall('PEXPIRE', lock, GRACE) == 1 and tell(channel, owner, lock, token, GRACE) then
      -- It may have died unnoticed since it was heard of: the one behind it looks after that.
      if now - first[2] > GRACE * 1000 then
        local second = redis.pcall('ZRANGE', queue, 0, 0)[1]
        if second then
          tell(channel, second, lock, '', GRACE)
        end
      end
      return true
    end
    redis.call('HDEL', lock, owner)
    first = redis.pcall('ZPOPMIN', queue)
  end
  return false
end

-- Answers 1, or 0 where there is no room or no permission: then the owner goes by its timer.
local function stand_in_line(queue, owner, now)
  if type(redis.pcall('ZADD', queue, 'NX', string.format('%.0f', now), owner)) ~= 'number' then
    return 0
  end
  redis.pcall('PEXPIRE', queue, QUEUE_TTL)
  return 1
end
