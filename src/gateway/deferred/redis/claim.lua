-- Takes due items of a scope: first those that a silent instance had in hand, then the oldest.
-- KEYS[1]: what every key begins with. ARGV: scope, consumer, now, lease in ms, how many.
local p, scope, consumer, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local lease, most = ARGV[4], tonumber(ARGV[5])
local line, later = p .. 'line:' .. scope, p .. 'later:' .. scope

for _, item in ipairs(redis.call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, 256)) do
    redis.call('XADD', line, '*', 'item', item)
    redis.call('ZREM', later, item)
end
redis.pcall('XGROUP', 'CREATE', line, 'weir', '0', 'MKSTREAM')

local claimed = {}
local function take(entries, second)
    for _, entry in ipairs(entries) do
        local key = p .. 'item:' .. entry[2][2]
        if redis.call('EXISTS', key) == 1 then
            redis.call('HSET', key, 'state', 'running')
            -- Whoever takes its instance down counts as tried.
            if second == '1' then redis.call('HINCRBY', key, 'attempts', 1) end
            claimed[#claimed + 1] = { entry[1], entry[2][2], second, redis.call('HGETALL', key) }
        else
            redis.call('XACK', line, 'weir', entry[1])
            redis.call('XDEL', line, entry[1])
        end
    end
end
take(redis.call('XAUTOCLAIM', line, 'weir', consumer, lease, '0', 'COUNT', most)[2], '1')
if #claimed < most then
    local read = redis.call('XREADGROUP', 'GROUP', 'weir', consumer, 'COUNT', most - #claimed,
        'STREAMS', line, '>')
    if read then take(read[1][2], '0') end
end
return claimed
