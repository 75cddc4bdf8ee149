-- Returns the permissions of a client that this user lacks.
-- ARGV  the prefix, the name of a channel, and further uses: `cluster`, `replicas`
-- Replies  {missing permissions that locks need, missing permissions that make locks quicker}: names of commands,
--          `~prefix*` for the keys, and `&prefix*` for the channels
-- Servers before Redis 7 reply with empty lists, because they cannot check. Without access to the keys, the server
-- refuses every command on locks, so that the reply names only the keys.
local prefix, channel = ARGV[1], ARGV[2]
local lock = prefix .. '{any}'
local fence, queue = lock .. ':fence', lock .. ':queue'

local needed = {
  {'get', fence}, {'hdel', lock, 'f'}, {'hexists', lock, 'f'}, {'hget', lock, 'f'}, {'hset', lock, 'f', 1},
  {'pexpire', lock, 1}, {'pttl', lock}, {'set', fence, 1, 'PX', 1, 'GET'},
}
local quicker = {
  {'zadd', queue, 'NX', 1, 'm'}, {'zpopmin', queue}, {'zrange', queue, 0, 0}, {'zrem', queue, 'm'},
  {'exists', lock}, {'hgetall', lock}, {'hsetnx', lock, 'f', 1},
}
local needed_of_server, quicker_of_server = {{'time'}}, {
  {'subscribe', channel}, {'publish', channel, ''}, {'client', 'id'}, {'client', 'tracking', 'on'},
  {'info', 'memory'},
}
local needed_beyond = {
  cluster = {{'asking'}, {'cluster', 'slots'}},
  replicas = {{'wait', 1, 1}},
}
local quicker_beyond = {cluster = {{'cluster', 'info'}}, replicas = {}}

local has_parts = {client = true, cluster = true, script = true}
local function add_refused(names, calls)
  for _, call in ipairs(calls) do
    if not redis.acl_check_cmd(unpack(call)) then
      names[#names + 1] = has_parts[call[1]] and call[1] .. '|' .. call[2] or call[1]
    end
  end
  return names
end

if not redis.acl_check_cmd then
  return {{}, {}}
end
-- Each script declares locks as its keys, so this call is refused only for the keys.
local of_locks, of_speed = {}, {}
if redis.acl_check_cmd('evalsha', '0', 1, lock) then
  add_refused(of_locks, needed)
else
  of_locks, quicker = {'~' .. prefix .. '*'}, {}
end
add_refused(of_locks, needed_of_server)
-- Either of them loads the scripts.
if not redis.acl_check_cmd('eval', '', 1, lock) then
  add_refused(of_locks, {{'script', 'load', ''}})
end
-- No command tells a refused channel from a refused command.
if not (redis.acl_check_cmd('subscribe', channel) or redis.acl_check_cmd('publish', channel, '')) then
  of_speed = {'&' .. prefix .. '*'}
end
add_refused(add_refused(of_speed, quicker_of_server), quicker)
for n = 3, #ARGV do
  add_refused(of_locks, needed_beyond[ARGV[n]])
  add_refused(of_speed, quicker_beyond[ARGV[n]])
end
return {of_locks, of_speed}
