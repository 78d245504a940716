-- What the holder of a ticket sees: nothing, or its time of storing, its place and the item's fields.
-- KEYS[1]: what every key begins with. ARGV: ticket, owner.
local p = KEYS[1]
local ticket = redis.call('HMGET', p .. 'ticket:' .. ARGV[1], 'item', 'owner', 'stored_ms')
if not ticket[1] or ticket[2] ~= ARGV[2] then return {} end
local key = p .. 'item:' .. ticket[1]
local seen = redis.call('HMGET', key, 'state', 'attempts', 'not_before_ms', 'expires_ms', 'status',
    'answer_headers', 'answer_body', 'code', 'scope')
if not seen[1] then return {} end
local rank = redis.call('ZRANK', p .. 'waits:' .. seen[9], ticket[1]) or 0
local found = { ticket[3], tostring(rank) }
for place = 1, 8 do found[place + 2] = seen[place] or '' end
return found
