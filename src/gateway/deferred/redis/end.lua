-- How one claim ended. The entry goes only now, when the end is stored.
-- KEYS[1]: what every key begins with. ARGV: entry, item, state, now, then for a state of queued: not
-- before, attempts; else: time to keep in ms, status, headers, body, code or ''.
local p, entry, item, state, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local key = p .. 'item:' .. item
local scope = redis.call('HGET', key, 'scope')
if not scope then return 'gone' end
local line = p .. 'line:' .. scope
local mine = redis.call('XACK', line, 'weir', entry)
redis.call('XDEL', line, entry)

if state == 'queued' then
    -- Somebody else has it in hand by now, or has ended it.
    if mine == 0 then return 'lost' end
    redis.call('HSET', key, 'state', 'queued', 'not_before_ms', ARGV[5], 'attempts', ARGV[6])
    redis.call('ZADD', p .. 'later:' .. scope, ARGV[5], item)
    return 'OK'
end
if redis.call('HGET', key, 'state') == 'done' then return 'lost' end
local keep = ARGV[5]
redis.call('HSET', key, 'state', state, 'ended_ms', now, 'expires_ms', now + keep, 'status', ARGV[6],
    'answer_headers', ARGV[7], 'answer_body', ARGV[8], 'code', ARGV[9])
redis.call('HINCRBY', key, 'attempts', 1)
redis.call('ZREM', p .. 'waits:' .. scope, item)
redis.call('ZADD', p .. state .. ':' .. scope, now + keep, item)
local work = p .. 'work:' .. redis.call('HGET', key, 'work')
if state == 'done' then
    -- What was asked is needed no more.
    redis.call('HDEL', key, 'body')
    redis.call('PEXPIRE', work, keep)
else
    redis.call('DEL', work)
end
redis.call('PEXPIRE', key, keep)
redis.call('PEXPIRE', p .. 'tickets:' .. item, keep)
for _, ticket in ipairs(redis.call('LRANGE', p .. 'tickets:' .. item, 0, -1)) do
    local again = redis.call('HGET', p .. 'ticket:' .. ticket, 'repeat')
    redis.call('PEXPIRE', p .. 'ticket:' .. ticket, keep)
    if again and again ~= '' then redis.call('PEXPIRE', p .. 'repeat:' .. again, keep) end
end
return 'OK'
