-- Lowers an owner's count. At zero the lock goes to the next: to the caller's own next waiter, or to
-- the first in line.
-- KEYS  lock
-- ARGV  owner, count wanted, keep (ms), the fence as the owner knows it, time to keep the fence (ms), channel prefix,
--       least token, and if the caller has a waiter: its owner, its lease (ms)
-- Answers  1      done, now or by an earlier copy of this request
--          token  the same, and the caller's waiter has the lock: the first token of its block. Nobody else waits
--          ''     the same, and the caller's waiter stands in line
--          2      the owner does not hold the lock, and others have held it since
--          0      the owner does not hold the lock
-- The count is absolute, so a repeated request changes nothing. A release leaves the fence one above
-- what it was, by which a late copy of the request knows that an earlier one was done. A full server
-- refuses commands that may take memory only as long as a script has written nothing: a write that
-- takes none goes first. What an ACL may refuse after that is tried with pcall.
--
-- This part is the usual case by itself, before anything else is set up: nobody waits, or the caller's
-- own waiter is next. What it leaves in `given_back`, `first` and `token` the other cases take up.
local lock, owner, own = KEYS[1], ARGV[1], ARGV[8]
local fence, queue = lock .. ':fence', lock .. ':queue'
local given_back, first, token
if ARGV[2] == '0' and ARGV[3] == '0' then
  local left = redis.pcall('HDEL', lock, owner)
  given_back = left == 1
  if type(left) == 'table' then
    -- For example, another key has the lock's name. A waiter leaves the wait queue anyway.
    redis.pcall('ZREM', queue, owner)
    return left
  elseif given_back then
    first = redis.pcall('ZPOPMIN', queue)
    if not own and not first[1] then
      if redis.pcall('INCR', fence) == 1 then
        redis.pcall('PEXPIRE', fence, ARGV[5])
      end
      return 1
    elseif not first[1] then
      token = redis.pcall('INCRBY', fence, '17')
      if type(token) == 'number' and token >= tonumber(ARGV[7]) and token < 9007199254740992
        and redis.pcall('HSET', lock, own, '1') == 1 and redis.pcall('PEXPIRE', lock, ARGV[9]) == 1 then
        redis.pcall('PEXPIRE', fence, ARGV[5])
        redis.pcall('EXISTS', lock)
        return token
      end
    end
  end
end
