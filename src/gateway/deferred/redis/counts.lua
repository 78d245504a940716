-- How many items of each scope are in each state, and when the oldest came that is not done. Forgets
-- results whose time is over. KEYS[1]: what every key begins with. ARGV: now.
local p, now = KEYS[1], ARGV[1]
local all = {}
for _, scope in ipairs(redis.call('SMEMBERS', p .. 'scopes')) do
    local pending = redis.pcall('XPENDING', p .. 'line:' .. scope, 'weir')
    local running = not pending.err and pending[1] or 0
    -- Consumers of processes that are long gone have nothing in hand.
    local consumers = redis.pcall('XINFO', 'CONSUMERS', p .. 'line:' .. scope)
    for _, one in ipairs(consumers.err and {} or consumers) do
        if one[4] == 0 and one[6] > 3600000 then
            redis.call('XGROUP', 'DELCONSUMER', p .. 'line:' .. scope, 'weir', one[2])
        end
    end
    local waits = p .. 'waits:' .. scope
    local oldest = redis.call('ZRANGE', waits, 0, 0, 'WITHSCORES')[2] or ''
    local ended = {}
    for place, state in ipairs({ 'done', 'dead' }) do
        redis.call('ZREMRANGEBYSCORE', p .. state .. ':' .. scope, '-inf', now)
        ended[place] = redis.call('ZCARD', p .. state .. ':' .. scope)
    end
    local queued = math.max(redis.call('ZCARD', waits) - running, 0)
    all[#all + 1] = { scope, tostring(queued), tostring(running), tostring(ended[1]),
        tostring(ended[2]), oldest }
end
return all
