local count, keep, fence_ttl, channel, lease = ARGV[2], ARGV[3], ARGV[5], ARGV[6], ARGV[9]

if count ~= '0' then
  local held = redis.call('HGET', lock, owner)
  if not held then
    return 0
  elseif held ~= count then
    local ttl = redis.call('PTTL', lock)
    if ttl > 0 then
      redis.call('PEXPIRE', lock, ttl)
    end
    redis.call('HSET', lock, owner, count)
  end
  redis.pcall('EXISTS', lock)
  return 1
end

if keep ~= '0' and redis.call('HEXISTS', lock, owner) == 1 then
  -- Nobody holds it any more: neither a late renewal nor a late release finds its owner.
  redis.call('PEXPIRE', lock, keep)
  redis.call('HSET', lock, 'kept', '1')
  redis.call('HDEL', lock, owner)
  if redis.pcall('INCR', fence) == 1 then
    redis.pcall('PEXPIRE', fence, fence_ttl)
  end
  local waiter = redis.pcall('ZRANGE', queue, '0', '0')[1]
  if waiter then
    local _, _, tell = waiters(channel)
    tell(waiter, lock, '', keep)
  end
  return 1
end

if given_back then
  local next = next_token(lock, fence_ttl, tonumber(ARGV[7]), token)
  if not next then
    return 1
  end
  if first[1] then
    local hand_off, stand_in_line = waiters(channel)
    if hand_off(lock, next, first, nil, own) then
      if own and stand_in_line(lock, own) > 0 then
        redis.pcall('EXISTS', lock)
        return ''
      end
      return 1
    end
  end
  if own and type(redis.pcall('HSET', lock, own, '1')) == 'number' then
    if redis.pcall('PEXPIRE', lock, lease) == 1 then
      redis.pcall('EXISTS', lock)
      return next
    end
    redis.call('HDEL', lock, own)
  end
  return 1
end

-- Whoever only stood in line leaves it.
redis.pcall('ZREM', queue, owner)
if own and redis.pcall('HEXISTS', lock, own) == 1 then
  if redis.call('PTTL', lock) < tonumber(lease) then
    redis.pcall('PEXPIRE', lock, lease)
  end
  return last_token(lock) or 1
elseif own and type(redis.pcall('ZSCORE', queue, own)) == 'string' then
  return ''
end
local last, spoilt = last_token(lock)
local above = (last or 0) - tonumber(ARGV[4])
return above == 1 and 1 or (above > 1 or spoilt) and 2 or 0
