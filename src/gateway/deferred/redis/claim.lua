-- Takes due items of a scope: one that a silent instance had in hand, else the oldest and those behind it
-- that go together with it.
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

-- The cursor passes what is not idle; what is in hand is little.
local from = '0-0'
repeat
    local found = redis.call('XAUTOCLAIM', line, 'weir', consumer, lease, from, 'COUNT', 1)
    from = found[1]
    take(found[2], '1')
until #claimed > 0 or from == '0-0'
if #claimed > 0 then return claimed end

-- How many of the next go together: the others are for whoever has a hand free.
local last = '0-0'
for _, group in ipairs(redis.call('XINFO', 'GROUPS', line)) do
    for place = 1, #group, 2 do
        if group[place] == 'last-delivered-id' then last = group[place + 1] end
    end
end
local count, kind = 0, nil
for _, entry in ipairs(redis.call('XRANGE', line, '(' .. last, '+', 'COUNT', most)) do
    local its = redis.call('HGET', p .. 'item:' .. entry[2][2], 'together') or ''
    if count > 0 and (kind == '' or its ~= kind) then break end
    count, kind = count + 1, its
end
if count > 0 then
    local read = redis.call('XREADGROUP', 'GROUP', 'weir', consumer, 'COUNT', count, 'STREAMS', line,
        '>')
    if read then take(read[1][2], '0') end
end
return claimed
