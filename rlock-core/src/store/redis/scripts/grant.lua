-- What the unusual cases of acquire.lua and release.lua share.

-- How long a lock is a waiter's that has not yet said that it is there (ms).
local GRACE = '1000'
-- Whoever was not heard of for this long may have died unnoticed (ms).
local UNHEARD = 50
-- A queue that nobody renews vanishes; whoever waits asks again sooner than this (ms).
local QUEUE_TTL = '20000'

-- How many fencing tokens a grant reserves from the one that the fence shows, and by how much the fence grows with
-- the next grant: a release leaves one more.
local BLOCK = 16
local STEP, BACK = '17', '-17'

-- Lua's numbers are doubles: from 2^53 on, tokens would repeat.
local TOO_LARGE = 9007199254740992

-- Returns the error for an invalid fencing token, which stays as it is.
local function no_token(fence)
  return redis.error_reply('WRONGTYPE ' .. fence .. ' is no fencing token, which is an integer below 2^53;'
    .. ' delete it, and tokens go on from the server\'s time')
end

-- Returns the last fencing token, or nil. The second result is an error if the token is invalid.
local function last_token(lock)
  local fence = lock .. ':fence'
  local text = redis.pcall('GET', fence)
  if not text then
    return nil
  elseif type(text) == 'string' then
    local token = string.find(text, '^%d+$') and tonumber(text)
    if token and token < TOO_LARGE then
      return token
    end
  elseif not string.find(text.err, 'WRONGTYPE', 1, true) then
    return nil, text
  end
  return nil, no_token(fence)
end

local function micros()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Reserves the next block of fencing tokens and returns its first, which the fence shows. What is less than the floor was counted
-- from nothing, or from what an older copy of the data remembers: then the block begins at the time (µs),
-- which is more than any from before. `token` is what INCRBY answered, if it was asked already.
local function next_token(lock, ttl, floor, token)
  local fence = lock .. ':fence'
  token = token or redis.pcall('INCRBY', fence, STEP)
  if type(token) ~= 'number' then
    for _, why in ipairs({'not an integer', 'would overflow', 'WRONGTYPE'}) do
      if string.find(token.err, why, 1, true) then
        return nil, no_token(fence)
      end
    end
    return nil, token
  elseif token >= TOO_LARGE or token <= BLOCK then
    redis.call('INCRBY', fence, BACK)
    return nil, no_token(fence)
  elseif token < floor then
    token = math.max(floor, micros())
    redis.call('SET', fence, string.format('%.0f', token), 'PX', ttl)
  else
    redis.pcall('PEXPIRE', fence, ttl)
  end
  return token
end

-- What only locks with waiters need.
local function waiters(channel)
  local now = micros()

  -- Tells the client of an owner something of its lock: that it was granted, as `<first token>/<size of the
  -- block>/<1 if others wait>`, and for how long; that others want it (`wanted`); or, with nothing, when to ask
  -- again. Returns whether the client listens.
  local function tell(owner, lock, what, ms)
    local client = string.sub(owner, 1, 36)
    local message = owner .. ' ' .. what .. ' ' .. ms .. ' ' .. lock
    -- Not for replicas: a client that still listens there is passed over here, so it is not to hear
    -- that it was given a lock.
    redis.set_repl(redis.REPL_NONE)
    local heard = redis.pcall('PUBLISH', channel .. client, message)
    redis.set_repl(redis.REPL_ALL)
    return type(heard) == 'number' and heard > 0
  end

  local function others_wait(lock)
    return redis.pcall('EXISTS', lock .. ':queue') == 1
  end

  -- Gives a free lock to the first in its queue whose client listens, `first` before the queue.
  -- Answers whether there was one; `asks` needs not be told. `joins`: another owner joins the queue after this. What is refused, by an ACL say, leaves
  -- the lock free.
  local function hand_off(lock, token, first, asks, joins)
    local queue = lock .. ':queue'
    while first[1] and first[1] ~= asks do
      local owner = first[1]
      if type(redis.pcall('HSET', lock, owner, '1')) ~= 'number' then
        return false
      end
      if redis.pcall('PEXPIRE', lock, GRACE) == 1
        and tell(owner, lock, string.format('%.0f/%d/%d', token, BLOCK, (joins or others_wait(lock)) and 1 or 0), GRACE) then
        -- In case that it has died, the one behind it looks after that; and the last in line, which was
        -- heard of last, in case that this one has died, too.
        if now - first[2] > UNHEARD * 1000 then
          local second = redis.pcall('ZRANGE', queue, '0', '0')[1]
          if second then
            tell(second, lock, '', GRACE)
            local last = redis.pcall('ZRANGE', queue, '-1', '-1')[1]
            if last ~= second then
              tell(last, lock, '', GRACE)
            end
          end
        end
        return true
      end
      redis.call('HDEL', lock, owner)
      first = redis.pcall('ZPOPMIN', queue)
    end
    return false
  end

  -- Returns 2 for the first waiter, 1 behind others, and 0 without room or permission. With 0 the
  -- owner asks again by its timer.
  local function stand_in_line(lock, owner)
    local queue = lock .. ':queue'
    if type(redis.pcall('ZADD', queue, 'NX', string.format('%.0f', now), owner)) ~= 'number' then
      return 0
    end
    redis.pcall('PEXPIRE', queue, QUEUE_TTL)
    return redis.pcall('ZRANGE', queue, '0', '0')[1] == owner and 2 or 1
  end

  return hand_off, stand_in_line, tell
end

