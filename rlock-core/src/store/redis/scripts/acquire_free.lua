-- Acquires one free lock without waiters for an exclusive owner, whose last character is a digit. This is the usual case, so
-- it takes as few commands as possible. In any other case `acquire.lua` follows, which describes the arguments and replies.
--
-- The fence is a text, the seconds of the server's time and four digits of their fraction, because the server would take longer
-- to print a number. Texts of equal length have the order of their numbers. A clock before 2001 makes a shorter text, which is
-- therefore left to `acquire.lua`, too.
local lock, call = KEYS[1], redis.pcall
-- A member of a quorum has no such key, so it tests the lock twice.
local late = ARGV[5] == 'all' and lock or lock .. ':' .. string.sub(ARGV[7], 1, 36) .. ':released'
local found = not KEYS[2] and string.byte(ARGV[7], -1) < 58 and call('EXISTS', lock, lock .. ':queue', late)
-- If it alone exists, an owner that is later than the refused ones may have the lock.
if (found == 0 or found == 1 and (tonumber(call('GET', late)) or 1 / 0) < tonumber(string.match(ARGV[7], '%d+$')))
  and (ARGV[5] ~= 'all' or call('GET', lock .. ':released') ~= ARGV[7]) then
  local now = redis.call('TIME')
  local fence = now[1] .. string.sub('00000' .. now[2], -6, -3)
  if #fence == 14 and ARGV[6] < fence then
    local last = call('SET', lock .. ':fence', fence, 'PX', ARGV[2], 'GET')
    if not last or type(last) == 'string' and last < fence then
      local done = call('HSET', lock, ARGV[7], '1')
      if done == 1 then
        done = call('PEXPIRE', lock, ARGV[1])
        if done == 1 then
          call('EXISTS', lock)
          return fence
        end
        call('HDEL', lock, ARGV[7])
      end
      return done
    elseif type(last) == 'string' then
      call('SET', lock .. ':fence', last, 'PX', ARGV[2])
    elseif not string.find(last.err, 'WRONGTYPE', 1, true) then
      -- Not left to `acquire.lua`, which may write first, so that even a full server would then grant the lock.
      return last
    end
  end
end
