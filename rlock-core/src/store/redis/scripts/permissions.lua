--!df flags=allow-undeclared-keys
-- Returns the permissions of a client that this user lacks.
-- KEYS  the name of a lock, or none: some services refuse scripts without keys
-- ARGV  the prefix, the name of a channel, and further uses: `cluster`, `replicas`
-- Replies  {missing permissions that locks need, missing permissions that make locks quicker}: names of commands,
--          `~prefix*` for the keys, and `&prefix*` for the channels
-- Servers before Redis 7 reply with empty lists, because they cannot check. Without access to the keys, the server
-- refuses every command on locks, so that the reply names only the keys.
local prefix, channel = ARGV[1], ARGV[2]
local lock = prefix .. '{any}'
local fence, queue, shared = lock .. ':fence', lock .. ':queue', lock .. ':shared'

-- For each use the needed calls, and those that make locks quicker.
local calls = {
  locks = {{
    {'get', fence}, {'hdel', lock, 'f'}, {'hexists', lock, 'f'}, {'hget', lock, 'f'}, {'hset', lock, 'f', 1},
    {'pexpire', lock, 1}, {'pttl', lock}, {'set', fence, 1, 'PX', 1, 'GET'},
  }, {
    {'zadd', queue, 'NX', 1, 'm'}, {'zpopmin', queue}, {'zrange', queue, 0, 0}, {'zrem', queue, 'm'},
    {'exists', lock}, {'hgetall', lock}, {'hsetnx', lock, 'f', 1}, {'zscore', shared, 'm'},
  }},
  server = {{{'time'}}, {
    {'subscribe', channel}, {'publish', channel, ''}, {'client', 'id'}, {'client', 'tracking', 'on'}, {'info', 'memory'},
  }},
  scripts = {{{'script', 'load', ''}}, {}},
  cluster = {{{'asking'}, {'cluster', 'slots'}}, {{'cluster', 'info'}}},
  replicas = {{{'wait', 1, 1}}, {}},
}
local missing, has_parts = {{}, {}}, {client = true, cluster = true, script = true}
local function check(use)
  for kind, names in ipairs(missing) do
    for _, call in ipairs(calls[use][kind]) do
      if not redis.acl_check_cmd(unpack(call)) then
        names[#names + 1] = has_parts[call[1]] and call[1] .. '|' .. call[2] or call[1]
      end
    end
  end
end
if not redis.acl_check_cmd then
  return missing
end
-- Each script declares locks as its keys, so this call is refused only for the keys.
if redis.acl_check_cmd('evalsha', '0', 1, lock) then
  check('locks')
else
  missing[1] = {'~' .. prefix .. '*'}
end
check('server')
-- Either of them loads the scripts.
if not redis.acl_check_cmd('eval', '', 1, lock) then
  check('scripts')
end
-- No command tells a refused channel from a refused command.
if not (redis.acl_check_cmd('subscribe', channel) or redis.acl_check_cmd('publish', channel, '')) then
  table.insert(missing[2], 1, '&' .. prefix .. '*')
end
for n = 3, #ARGV do
  check(ARGV[n])
end
return missing
