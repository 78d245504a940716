-- Says that entries are still in this consumer's hand.
-- KEYS[1]: what every key begins with. ARGV: scope, consumer, entries.
local line = KEYS[1] .. 'line:' .. ARGV[1]
for place = 3, #ARGV do
    local mine = redis.call('XPENDING', line, 'weir', ARGV[place], ARGV[place], 1, ARGV[2])
    if #mine > 0 then
        redis.call('XCLAIM', line, 'weir', ARGV[2], 0, ARGV[place], 'JUSTID')
    end
end
return 'OK'
