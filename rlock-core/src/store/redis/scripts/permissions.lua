-- Returns the commands of a client that this user may not call.
-- ARGV  the name of a lock, the name of a channel, and further uses: `cluster`, `replicas`
-- Replies  {refused commands that locks need, refused commands that make locks quicker}
-- Servers before Redis 7 reply with empty lists, because they cannot check. A user who may not access this lock at all
-- may access others, so the commands on locks are not reported then.
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
local needed_of_server, quicker_of_server = {{'time'}}, {
  {'subscribe', channel}, {'publish', channel, ''}, {'client', 'id'}, {'client', 'tracking', 'on'},
  {'info', 'memory'},
}
local needed_beyond = {
  cluster = {{'asking'}, {'cluster', 'myid'}, {'cluster', 'slots'}},
  replicas = {{'wait', 1, 1}},
}
local quicker_beyond = {cluster = {{'cluster', 'info'}}, replicas = {}}

local function add_refused(names, calls)
  for _, call in ipairs(calls) do
    if not redis.acl_check_cmd(unpack(call)) then
      local has_parts = call[1] == 'client' or call[1] == 'cluster'
      names[#names + 1] = has_parts and call[1] .. '|' .. call[2] or call[1]
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
of_locks = add_refused(of_locks, needed_of_server)
local of_speed = add_refused(add_refused({}, quicker_of_server), quicker)
for n = 3, #ARGV do
  add_refused(of_locks, needed_beyond[ARGV[n]])
  add_refused(of_speed, quicker_beyond[ARGV[n]])
end
return {of_locks, of_speed}
