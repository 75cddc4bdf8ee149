-- Reads and changes the holders of a lock (one exclusive owner, shared holders or permits), and removes those whose lease
-- has ended.
--
-- The keys of a lock have one hash tag:
--   <lock>         a hash of the owner to the count of its entries; or of `shared` to 1, or of `permits` to 1 and the number of
--                  permits that holders have in addition to their first, until the last lease of the holders ends
--   <lock>:shared  the holders of a shared lock or of permits: a sorted set of owners by the end of their leases (ms)
--   <lock>:fence   the last fence
--   <lock>:queue   the wait queue: a sorted set of owners, one for each client, by the server's time (µs) at joining
--   <lock>:released  at a member of a quorum, the owner whose lock was released last, without the `s`
--   <lock>:<client>:released  at a single server, the sequence up to which acquires of the client are refused
-- The last character of an owner is a digit, `s` if it shares the lock, or `p` if it has one of `.<number>p` permits, or
-- several, as in `.<several>.<number>p`.
--
-- Only the locks are declared as keys. A server that tracks keys for a client remembers every declared key at each
-- read, and would report irrelevant changes. The last command on each lock reads it, so that tracking reports the
-- changes by other clients.
--
-- Each script is idempotent, and returns no error after a write that took effect. A full server refuses commands that
-- may take memory only until a script has written. Commands that an ACL may refuse after that are called by pcall.
-- Constant arguments are strings, because the server formats each number with printf.

-- Returns the field that stands for the holders in the mode of an owner, how many there may be, and as how many the owner
-- counts; nil if it is exclusive.
function lib.mode(owner)
  local last = string.sub(owner, -1)
  if last == 's' then
    return 'shared', math.huge, 1
  elseif last == 'p' then
    return 'permits', tonumber(string.match(owner, '%.(%d+)p$')), tonumber(string.match(owner, '%.(%d+)%.%d+p$') or 1)
  end
end

-- Returns the server's time (ms).
local function millis()
  return math.floor(lib.micros() / 1000)
end

-- Sets the TTL of a lock with several holders: the last lease of them. Without holders, the lock is free.
local function keep(lock, mode)
  local last = redis.pcall('ZRANGE', lock .. ':shared', '-1', '-1', 'WITHSCORES')
  if last.err then
    return last
  elseif last[2] then
    local ttl = string.format('%.0f', last[2] - millis())
    redis.pcall('PEXPIRE', lock .. ':shared', ttl)
    return redis.pcall('PEXPIRE', lock, ttl)
  end
  return redis.pcall('HDEL', lock, mode)
end
lib.keep = keep

-- Changes the number of permits that holders have in addition to their first, of which the lock's hash has the sum. It changes
-- only with the members of the sorted set, and nothing is read for holders of one permit.
local function add_permits(lock, number)
  local before = number ~= 0 and redis.pcall('HGET', lock, 'permits')
  if type(before) == 'string' then
    redis.pcall('HSET', lock, 'permits', string.format('%.0f', before + number))
  end
end

-- Removes the holders whose leases ended.
function lib.purge(lock)
  local shared, now = lock .. ':shared', string.format('%.0f', millis())
  repeat
    local ended, freed = redis.pcall('ZRANGE', shared, '-inf', now, 'BYSCORE', 'LIMIT', '0', '1000'), 0
    local removed = ended[1] and redis.pcall('ZREM', shared, unpack(ended))
    for n = 1, type(removed) == 'number' and #ended or 0 do
      freed = freed + select(3, lib.mode(ended[n])) - 1
    end
    add_permits(lock, -freed)
  until not ended[1000] or type(removed) ~= 'number'
end

-- Returns whether an owner that is not exclusive has its lease, or an error if the server refuses a write. The owner
-- may have had the exclusive lock before: then it shares the lock from now on.
function lib.shares(lock, owner)
  local mode, shared, former = lib.mode(owner), lock .. ':shared', string.sub(owner, 1, -2)
  local ends = redis.pcall('HGET', lock, mode)
  if type(ends) == 'string' then
    ends = redis.pcall('ZSCORE', shared, owner)
  end
  if type(ends) == 'string' then
    return tonumber(ends) > millis()
  elseif type(ends) == 'table' then
    return ends
  elseif mode ~= 'shared' or type(redis.pcall('HGET', lock, former)) ~= 'string' then
    return false
  end
  local ttl = redis.call('PTTL', lock)
  -- Whatever the server refuses, the lock keeps a holder and a TTL.
  ttl = ttl > 0 and ttl or lib.GRACE
  redis.pcall('PEXPIRE', lock, ttl)
  redis.pcall('PEXPIRE', shared, '0')
  local refused = redis.pcall('ZADD', shared, string.format('%.0f', millis() + ttl), owner)
  if type(refused) == 'table' then
    return refused
  end
  refused = redis.pcall('HSET', lock, mode, '1')
  if type(refused) == 'table' then
    return refused
  end
  redis.pcall('HDEL', lock, former)
  keep(lock, mode)
  return true
end

-- Returns whether an owner may hold a lock together with the other holders. `number`: there are this many permits, whatever the
-- owner says.
function lib.admits(lock, owner, number)
  local entry, mode, most, takes = redis.pcall('HGETALL', lock), lib.mode(owner)
  local present = entry[1]
  if present == 'shared' or present == 'permits' then
    lib.purge(lock)
    local first = redis.pcall('ZRANGE', lock .. ':shared', '0', '0')
    if not first[1] and not first.err then
      return redis.pcall('HDEL', lock, present) == 1
    end
    if mode ~= present or mode == 'shared' then
      return mode == present
    end
    -- One holder more would be too many if the one at this place were there.
    local last = (number or most) - takes - ((entry[2] == '1' and 1 or redis.pcall('HGET', lock, mode)) - 1)
    local place = string.format('%.0f', last)
    return last >= 0 and not redis.pcall('ZRANGE', lock .. ':shared', place, place)[1]
  end
  return not present and not entry.err
end

-- Gives an owner a lock that admits it, for this time (ms). A shared lease only grows. Returns an error if the server
-- refuses that.
function lib.grant(lock, owner, ttl)
  local mode, _, takes = lib.mode(owner)
  local refused
  if not mode then
    refused = redis.pcall('HSET', lock, owner, '1')
    return type(refused) == 'table' and refused or redis.pcall('PEXPIRE', lock, ttl)
  end
  local shared, ends = lock .. ':shared', millis() + ttl
  local added = redis.pcall('HSETNX', lock, mode, '1')
  if type(added) == 'table' then
    return added
  end
  local is_new = added == 1
  if is_new then
    redis.pcall('PEXPIRE', lock, ttl)
    -- Removes the remains of a deleted lock.
    redis.pcall('PEXPIRE', shared, '0')
  end
  local before = redis.pcall('ZSCORE', shared, owner)
  if type(before) == 'string' and tonumber(before) > ends then
    ends = tonumber(before)
  end
  refused = redis.pcall('ZADD', shared, string.format('%.0f', ends), owner)
  if type(refused) == 'table' and is_new then
    redis.pcall('HDEL', lock, mode)
  end
  add_permits(lock, refused == 1 and takes - 1 or 0)
  local kept = keep(lock, mode)
  return type(refused) == 'table' and refused or kept
end

-- Keeps the lease of an owner that is not exclusive for this time at least. Returns an error if the server refuses that.
function lib.extend(lock, owner, ttl)
  -- A write that takes no memory precedes the other, which then does not fail on a full server.
  redis.pcall('PEXPIRE', lock, ttl)
  local refused = redis.pcall('ZADD', lock .. ':shared', 'GT', string.format('%.0f', millis() + ttl), owner)
  local kept = keep(lock, lib.mode(owner))
  return type(refused) == 'table' and refused or kept
end

-- Takes a lock from an owner, and returns 1 if the owner held it. A lock that is shared is kept for `min_hold` (ms).
function lib.leave(lock, owner, min_hold)
  local shared, mode, _, takes = lock .. ':shared', lib.mode(owner)
  if not mode then
    return redis.pcall('HDEL', lock, owner)
  end
  if not min_hold and mode == 'shared' and redis.pcall('HDEL', lock, string.sub(owner, 1, -2)) == 1 then
    return 1
  end
  local held = lib.shares(lock, owner)
  if held ~= true then
    return held or 0
  end
  -- In a slot that migrates, a set that is empty cannot be read, nor be created again.
  local is_last = not min_hold and #redis.pcall('ZRANGE', shared, '0', '1') == 1
  if min_hold then
    -- A write that takes no memory precedes the other, as in `extend`.
    redis.pcall('PEXPIRE', lock, min_hold)
    local kept = redis.pcall('ZADD', shared, string.format('%.0f', millis() + min_hold), 'kept:' .. owner)
    takes = kept == 1 and 1 or takes
  end
  local removed = redis.pcall('ZREM', shared, owner)
  if is_last and removed == 1 then
    redis.pcall('HDEL', lock, mode)
  elseif removed == 1 then
    add_permits(lock, 1 - takes)
    keep(lock, mode)
  end
  return removed
end

-- Returns how long a lock is not free for an owner (ms): a permit, until the first lease ends.
function lib.rest(lock, owner)
  local mode = lib.mode(owner)
  local first = mode == 'permits' and redis.pcall('HGET', lock, mode)
    and redis.pcall('ZRANGE', lock .. ':shared', '0', '0', 'WITHSCORES')
  return first and first[2] and first[2] - millis() or redis.call('PTTL', lock)
end
