-- Dead letters. KEYS[1]: what every key begins with. ARGV: 'list' and how many, or 'requeue' or 'delete'
-- and the item.
local p, what = KEYS[1], ARGV[1]
if what == 'list' then
    local all = {}
    for _, scope in ipairs(redis.call('SMEMBERS', p .. 'scopes')) do
        for _, item in ipairs(redis.call('ZREVRANGE', p .. 'dead:' .. scope, 0, ARGV[2] - 1)) do
            local row = redis.call('HMGET', p .. 'item:' .. item, 'scope', 'tenant', 'path', 'status',
                'code', 'attempts', 'stored_ms', 'ended_ms')
            if row[1] then
                table.insert(row, 1, item)
                all[#all + 1] = row
            end
        end
    end
    return all
end
local key = p .. 'item:' .. ARGV[2]
local known = redis.call('HMGET', key, 'state', 'scope', 'stored_ms', 'work')
if known[1] ~= 'dead' then return {} end
redis.call('ZREM', p .. 'dead:' .. known[2], ARGV[2])
local tickets = redis.call('LRANGE', p .. 'tickets:' .. ARGV[2], 0, -1)
for _, ticket in ipairs(tickets) do
    local its = p .. 'ticket:' .. ticket
    local again = redis.call('HGET', its, 'repeat')
    local command = what == 'delete' and 'DEL' or 'PERSIST'
    redis.call(command, its)
    if again and again ~= '' then redis.call(command, p .. 'repeat:' .. again) end
end
if what == 'delete' then
    redis.call('DEL', key, p .. 'tickets:' .. ARGV[2])
    return { { 'deleted' } }
end
redis.call('PERSIST', key)
redis.call('PERSIST', p .. 'tickets:' .. ARGV[2])
redis.call('HSET', key, 'state', 'queued', 'attempts', '0', 'not_before_ms', '0')
redis.call('HDEL', key, 'status', 'answer_headers', 'answer_body', 'code', 'ended_ms', 'expires_ms')
redis.call('SET', p .. 'work:' .. known[4], ARGV[2])
redis.call('ZADD', p .. 'waits:' .. known[2], known[3], ARGV[2])
redis.call('ZADD', p .. 'later:' .. known[2], 0, ARGV[2])
return { { 'requeued' } }
