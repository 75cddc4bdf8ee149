-- The functions that several scripts share. This file precedes each of them.
--
-- The keys of a lock have one hash tag:
--   <lock>        a hash of the owner to the count of its entries
--   <lock>:fence  the counter of fencing tokens
--   <lock>:queue  the wait queue: a sorted set of owners, one for each process, by the server's time (µs) at joining
--
-- Only the locks are declared as keys. A server that tracks keys for a client remembers every declared key at each
-- read, and would report irrelevant changes. The last command on each lock reads it, so that tracking reports the
-- changes by other clients.
--
-- Each script is idempotent, and returns no error after a write that took effect. A full server refuses commands that
-- may take memory only until a script has written. Commands that an ACL may refuse after that are called by pcall.
-- Constant arguments are strings, because the server formats each number with printf.

-- Returns the shared functions. A script calls this after its usual case, because each function costs time to create.
local function library()
  -- The grace period (ms): a lock is reserved for a waiter that has not confirmed its wait.
  local GRACE = '1000'
  -- A waiter that was silent for longer than this (ms) may be dead.
  local SILENT = 50
  -- The lifetime of a queue (ms). Waiters ask again sooner, which renews it.
  local QUEUE_TTL = '20000'
  -- A grant reserves a block of tokens, from the one that the fence shows. A release adds one more, so the next grant
  -- adds BLOCK + 1.
  local BLOCK, STEP, BACK = 16, '17', '-17'
  -- Lua's numbers are doubles: from 2^53 on, tokens would repeat.
  local TOO_LARGE = 9007199254740992
  local lib, time = {GRACE = GRACE}, nil

  -- Returns the server's time (µs), or nil and an error.
  local function micros()
    time = time or redis.pcall('TIME')
    if time.err then
      return nil, time
    end
    return time[1] * 1000000 + time[2]
  end

  -- Returns the least token that a request may be granted. `least` is that token or, if the client has no recent
  -- write, `<that token>:<replication id>`. A server with another id may have been promoted, so its fences may be older
  -- copies, and tokens start from its time. Then the second result is an error with the new least token and the
  -- server's id. A script that has not written returns this error, and the client repeats the request with both values.
  function lib.least_token(least)
    local token = tonumber(least)
    if token then
      return token
    end
    local text, id = string.match(least, '^(%d+):(.+)$')
    local replication = redis.pcall('INFO', 'replication')
    token = tonumber(text)
    local present = type(replication) == 'string' and string.match(replication, 'master_replid:([^\r\n]*)')
    if present and present ~= id and micros() then
      token = math.max(token, micros())
      return token, redis.error_reply('PROMOTED ' .. string.format('%.0f', token) .. ' ' .. present)
    end
    return token
  end

  -- Returns the error for an invalid fencing token. The script leaves that token unchanged.
  function lib.invalid_token(fence)
    return redis.error_reply('WRONGTYPE ' .. fence .. ' is no fencing token, which is an integer below 2^53;'
      .. ' delete it, and tokens start from the server\'s time')
  end

  -- Returns the last fencing token, or nil. The second result is an error if the token is invalid.
  function lib.last_token(lock)
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
    return nil, lib.invalid_token(fence)
  end

  -- Reserves the next block of fencing tokens and returns its first, or nil and an error. A token below `least` comes
  -- from a lost fence or from an older copy of the data. Then the block starts at the server's time, which is larger
  -- than any earlier token. `token` is the reply of INCRBY, if the script sent that already.
  function lib.next_token(lock, ttl, least, token)
    local fence = lock .. ':fence'
    token = token or redis.pcall('INCRBY', fence, STEP)
    if type(token) ~= 'number' then
      for _, why in ipairs({'not an integer', 'would overflow', 'WRONGTYPE'}) do
        if string.find(token.err, why, 1, true) then
          return nil, lib.invalid_token(fence)
        end
      end
      return nil, token
    elseif token >= TOO_LARGE or token <= BLOCK then
      redis.pcall('INCRBY', fence, BACK)
      return nil, lib.invalid_token(fence)
    elseif token >= least then
      redis.pcall('PEXPIRE', fence, ttl)
      return token
    end
    local now, refused = micros()
    if now then
      token = math.max(least, now)
      refused = redis.pcall('SET', fence, string.format('%.0f', token), 'PX', ttl)
    end
    if refused.err then
      redis.pcall('PEXPIRE', fence, ttl)
      return nil, refused
    end
    return token
  end

  -- Notifies the client of an owner about a lock. Returns whether the client listens. `what` and `ms` are one of:
  --   `<first token>/<size of the block>/<1 if others wait>` and the lease of a grant
  --   `wanted` and 0
  --   an empty string and the time after which to ask again
  function lib.notify(channel, owner, lock, what, ms)
    local message = owner .. ' ' .. what .. ' ' .. ms .. ' ' .. lock
    -- Not replicated: the script passes over a client that listens at a replica, so it must not receive the grant.
    redis.set_repl(redis.REPL_NONE)
    local receivers = redis.pcall('PUBLISH', channel .. string.sub(owner, 1, 36), message)
    redis.set_repl(redis.REPL_ALL)
    return type(receivers) == 'number' and receivers > 0
  end

  -- Hands a free lock off to the first waiter whose client listens, and returns whether there is one. `first` is the
  -- reply of ZPOPMIN, if the script sent that already. `asks` is the owner of this request, which gets no notification.
  -- With `joins`, another owner joins the queue after this. A write that an ACL refuses leaves the lock free.
  function lib.hand_off(channel, lock, token, first, asks, joins)
    local queue = lock .. ':queue'
    first = first or redis.pcall('ZPOPMIN', queue)
    while first[1] and first[1] ~= asks do
      local owner = first[1]
      if type(redis.pcall('HSET', lock, owner, '1')) ~= 'number' then
        return false
      end
      local given = redis.pcall('PEXPIRE', lock, GRACE) == 1
      local wanted = given and (joins or redis.pcall('EXISTS', queue) == 1) and 1 or 0
      if given and lib.notify(channel, owner, lock, string.format('%.0f/%d/%d', token, BLOCK, wanted), GRACE) then
        -- The new owner may be dead, so the next waiter retries after the grace period. The next waiter may be dead,
        -- too, so the last waiter retries as well: it was active most recently.
        local now = micros()
        if not now or now - first[2] > SILENT * 1000 then
          local second = redis.pcall('ZRANGE', queue, '0', '0')[1]
          if second then
            lib.notify(channel, second, lock, '', GRACE)
            local last = redis.pcall('ZRANGE', queue, '-1', '-1')[1]
            if last ~= second then
              lib.notify(channel, last, lock, '', GRACE)
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

  -- Adds an owner to the queue. Returns 2 for the first waiter, 1 behind others, and 0 without memory or permission. In
  -- the last case the owner asks again when its timer ends.
  function lib.join_queue(lock, owner)
    local queue, now = lock .. ':queue', micros()
    if not now or type(redis.pcall('ZADD', queue, 'NX', string.format('%.0f', now), owner)) ~= 'number' then
      return 0
    end
    redis.pcall('PEXPIRE', queue, QUEUE_TTL)
    return redis.pcall('ZRANGE', queue, '0', '0')[1] == owner and 2 or 1
  end

  return lib
end

