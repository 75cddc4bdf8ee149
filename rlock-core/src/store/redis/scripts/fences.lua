-- Sets the next fence of a lock with each grant, so that a database can refuse what a late owner writes.

-- The floor of a request, less a second. If the server's clock is behind this, the next fence is the floor at least. Without
-- the second, clients with quick replies would make fences run ahead of the clock.
lib.floor = 0

local time

-- Returns the server's time (µs).
function lib.micros()
  time = time or redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Returns the server's time in units of fences.
function lib.clock()
  time = time or redis.call('TIME')
  return time[1] * lib.SECOND + math.floor(time[2] * lib.SECOND / 1000000)
end

-- Sets the next fence of a lock, and returns it, or nil and an error. The fence is the server's time, but larger than the last
-- fence, and not below the floor. `least` replaces the floor, or with `is_exact` the floor and the time. A last fence that is
-- not below `least` stays, and the function returns nil.
function lib.next_fence(lock, ttl, least, is_exact)
  local key, now = lock .. ':fence', is_exact and 0 or lib.clock()
  local fence = math.max(now, least or lib.floor > now and lib.floor + lib.SECOND or 0)
  local last = redis.pcall('SET', key, string.format('%.0f', fence), 'PX', ttl, 'GET')
  if type(last) == 'table' then
    local is_foreign = string.find(last.err, 'WRONGTYPE', 1, true)
    return nil, is_foreign and redis.error_reply('WRONGTYPE ' .. key .. ' is not a fence; delete it') or last
  end
  last = tonumber(last)
  if last and last >= (least or fence) and last < lib.TOO_LARGE - 1 then
    fence = least and last or last + 1
    redis.pcall('SET', key, string.format('%.0f', fence), 'PX', ttl)
    return not least and fence or nil
  end
  return fence
end

-- Returns the last fence of a lock, or nil and the error if the server refuses that.
function lib.last_fence(lock)
  local text = redis.pcall('GET', lock .. ':fence')
  local fence = type(text) == 'string' and string.find(text, '^%d+$') and tonumber(text)
  if fence and fence < lib.TOO_LARGE then
    return fence
  end
  return nil, type(text) == 'table' and not string.find(text.err, 'WRONGTYPE', 1, true) and text or nil
end
