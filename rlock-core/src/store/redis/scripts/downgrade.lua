-- Makes the exclusive lock of an owner a shared one, and lets in the first waiters that share it.
-- KEYS  lock
-- ARGV  owner, which ends with `s`, a fence to raise that of the lock to or 0, time to keep the fence (ms), channel prefix,
--       `first` to hand the lock off or `all` to make all waiters ask again, the floor of new fences less a second or 0
-- Replies  1  done
--          0  the owner does not hold the lock
local lock, is_member, lib = KEYS[1], ARGV[5] == 'all', library()
local held = lib.shares(lock, ARGV[1])
lib.floor = tonumber(ARGV[6])
if (held == true or is_member) and ARGV[2] ~= '0' then
  -- Those who join it have no smaller fence.
  lib.next_fence(lock, ARGV[3] + math.max(redis.call('PTTL', lock), 0), tonumber(ARGV[2]))
end
if held == true and is_member then
  lib.ask_all(ARGV[4], lock, '0')
elseif held == true then
  lib.hand_off(ARGV[4], lock, ARGV[3], nil, nil, true)
end
redis.pcall('EXISTS', lock)
return held == true and 1 or held or 0
