-- Stores a request, or finds the ticket that its caller has already.
-- KEYS[1]: what every key begins with. ARGV: ticket, owner, work print, repeat print or '', whether done
-- work will do, not before, now, item, scope, then the item's own fields by twos.
local p = KEYS[1]
local ticket, owner, work, again, takes_done = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local not_before, now, item, scope = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local had = again ~= '' and redis.call('GET', p .. 'repeat:' .. again)
local its_work = had and redis.call('HGET', p .. 'ticket:' .. had, 'work')
if its_work then
    if its_work ~= work then return { 'mismatch', '', '' } end
    return { 'stored', had, '1' }
end

local found = redis.call('GET', p .. 'work:' .. work)
local state = found and redis.call('HGET', p .. 'item:' .. found, 'state')
local merged = state == 'queued' or state == 'running' or (state == 'done' and takes_done == '1')
if merged then
    item = found
else
    redis.call('HSET', p .. 'item:' .. item, 'state', 'queued', 'scope', scope, 'work', work,
        'stored_ms', now, 'not_before_ms', not_before, 'attempts', '0', unpack(ARGV, 10))
    redis.call('SET', p .. 'work:' .. work, item)
    redis.call('SADD', p .. 'scopes', scope)
    redis.call('ZADD', p .. 'waits:' .. scope, now, item)
    if tonumber(not_before) <= tonumber(now) then
        redis.call('XADD', p .. 'line:' .. scope, '*', 'item', item)
    else
        redis.call('ZADD', p .. 'later:' .. scope, not_before, item)
    end
end
redis.call('HSET', p .. 'ticket:' .. ticket, 'item', item, 'owner', owner, 'work', work,
    'repeat', again, 'stored_ms', now)
redis.call('RPUSH', p .. 'tickets:' .. item, ticket)
if again ~= '' then redis.call('SET', p .. 'repeat:' .. again, ticket) end
-- A result that was there already takes its time limit along.
local left = redis.call('PTTL', p .. 'item:' .. item)
if left > 0 then
    redis.call('PEXPIRE', p .. 'ticket:' .. ticket, left)
    if again ~= '' then redis.call('PEXPIRE', p .. 'repeat:' .. again, left) end
end
return { 'stored', ticket, merged and '1' or '0' }
