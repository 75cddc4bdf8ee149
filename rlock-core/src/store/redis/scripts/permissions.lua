-- Says what this user may not do of all that a client does.
-- ARGV  the name of a lock, the name of a channel
-- Answers  {names of commands that locks need, names of those that make them quicker}
-- Servers before Redis 7 cannot tell, and answer empty lists. Of a user who may touch other locks only, the
-- commands that touch locks are not known.
local lock, channel = ARGV[1], ARGV[2]
local fence, queue = lock .. ':fence', lock .. ':queue'

local needed = {
  {'get', fence}, {'hdel', lock, 'f'}, {'hexists', lock, 'f'}, {'hget', lock, 'f'}, {'hset', lock, 'f', 1},
  {'incrby', fence, 2}, {'pexpire', lock, 1}, {'pttl', lock}, {'set', fence, 1, 'PX', 1},
}
local quicker = {
  {'zadd', queue, 'NX', 1, 'm'}, {'zpopmin', queue}, {'zrange', queue, 0, 0}, {'zrem', queue, 'm'},
  {'zscore', queue, 'm'}, {'exists', lock}, {'incr', fence}, {'hgetall', lock},
}
local needed_of_server = {{'time'}}
local quicker_of_server = {
  {'subscribe', channel}, {'publish', channel, ''}, {'client', 'id'}, {'client', 'tracking', 'on'},
  {'info', 'memory'},
}

local function add_refused(names, calls)
  for _, call in ipairs(calls) do
    if not redis.acl_check_cmd(unpack(call)) then
      names[#names + 1] = call[1] == 'client' and 'client|' .. call[2] or call[1]
    end
  end
  return names
end

if not redis.acl_check_cmd then
  return {{}, {}}
end
local of_locks = add_refused({}, needed)
if #of_locks == #needed then
  of_locks, quicker = {}, {}
end
return {add_refused(of_locks, needed_of_server), add_refused(add_refused({}, quicker_of_server), quicker)}
