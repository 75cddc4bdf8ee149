-- Gives locks to owners that a majority of the members of a quorum has confirmed, at a member that lacks them.
-- KEYS  lock, lock, …
-- ARGV  lease (ms), time to keep fences (ms), owner, count, last fence, owner, count, last fence, …
-- Replies  {…}  for each lock: 1 if it was restored; 0 if an owner has it, or its owner was released since
local replies, lib = {}, library()
for n, lock in ipairs(KEYS) do
  local owner, count, fence = ARGV[3 * n], ARGV[3 * n + 1], ARGV[3 * n + 2]
  local is_shared, refused = lib.mode(owner) ~= nil, nil
  -- A shared owner may have been an exclusive one, and was released as either.
  local was_released = redis.pcall('GET', lock .. ':released') == string.match(owner, '^[^s]+')
  local held = was_released or is_shared and lib.shares(lock, owner)
  if type(held) == 'table' then
    return held
  end
  replies[n] = 0
  if not held and lib.admits(lock, owner) then
    refused = select(2, lib.next_fence(lock, ARGV[2], tonumber(fence), true))
    if not refused and is_shared then
      refused = lib.grant(lock, owner, tonumber(ARGV[1]))
    elseif not refused then
      refused = redis.pcall('HSET', lock, owner, count)
      if type(refused) ~= 'table' then
        refused = redis.pcall('PEXPIRE', lock, ARGV[1])
      end
    end
    if type(refused) == 'table' then
      lib.leave(lock, owner)
      return refused
    end
    redis.pcall('ZREM', lock .. ':queue', owner)
    replies[n] = 1
  end
end
redis.pcall('EXISTS', unpack(KEYS))
return replies
