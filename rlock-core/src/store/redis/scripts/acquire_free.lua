-- Gives locks to owners that want them once, all or none; or lets a holder count further entries.
-- KEYS  lock, lock, …
-- ARGV  lease (ms), count wanted, time to keep the fence (ms), 1 to join the wait queue, channel prefix,
--       least token, owner, owner, …
-- Answers  {1, token, token, …}  every owner holds its lock with that count; each token is the first of its block
--          {2, token, token, …}  the same, and others wait for one of the locks
--          {0, n, ttl, in line, fence, fence, …}  another holds the n-th (from 0), for ttl ms (-1:
--                               without an end); in line: 2 for the first, 1 behind others, 0 for no
--                               place; earlier grants up to these tokens are void
--          {-1}                  further entries wanted by an owner that holds nothing
-- The count is absolute, so a repeated request changes nothing. A write that is refused after another
-- took effect (an ACL may do that) undoes what was given. The last command on each lock reads it, so
-- that tracking sees foreign changes.
--
-- Only the locks are declared as keys: a server that tracks keys for a client remembers every
-- declared key at each read, and would tell of changes that concern nobody. What else belongs to a
-- lock shares its hash tag: `<lock>:fence` counts the fencing tokens, and `<lock>:queue` holds the
-- owners that wait, one for each process, by the server time at which they came.
--
-- A grant reserves a block of 16 tokens, from the one that the fence shows. So the fence grows by 17 with the next
-- grant: a release leaves one more.
--
-- Constants among arguments are strings: the server writes out each number by printf.
--
-- This part is the usual case by itself, before anything else is set up: one lock, free, and nobody in
-- line. What it leaves in `token` and `first` the other case takes up.
local token, first
if not KEYS[2] and ARGV[2] == '1' and redis.call('PTTL', KEYS[1]) == -2 then
  local lock = KEYS[1]
  local fence = lock .. ':fence'
  token = redis.pcall('INCRBY', fence, '17')
  if type(token) == 'number' and token >= tonumber(ARGV[6]) and token < 9007199254740992 then
    redis.call('PEXPIRE', fence, ARGV[3])
    first = redis.pcall('ZPOPMIN', lock .. ':queue')
    if not first[1] then
      local done = redis.pcall('HSET', lock, ARGV[7], '1')
      if done == 1 then
        done = redis.pcall('PEXPIRE', lock, ARGV[1])
        if done == 1 then
          redis.pcall('EXISTS', lock)
          return {1, token}
        end
        redis.call('HDEL', lock, ARGV[7])
      end
      return done
    end
  end
end

