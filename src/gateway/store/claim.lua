-- May one attempt start now? Takes from every meter or from none.
--
-- Answers {{now, wait, why}, mirror}. `why` is empty when granted; else 'breaker', 'pause',
-- 'concurrency', or the place of the limit that keeps it waiting longest.

-- A meter that never fills is worth asking about again: its limit may be changed meanwhile.
local NEVER = 60e6
-- When a call of another instance ends is not known.
local LOOK_AGAIN = 50e3

load()
local now = clock()
local instance, in_flight, lease = word(), number(), number()
local obey_breaker, in_flight_max = number() == 1, number()

local meters = {}
local rate_factor = factor()
for i = 1, number() do
  meters[i] = meter(now, rate_factor)
  meters[i].takes = number()
end
local count, open = others(now, instance)

-- The time until so much of a sliding window has left, from the cells in their order.
local function until_left(it, amount)
  local newest = it.cell
  local fields = {}
  for cell = newest - CELLS_PER_WINDOW, newest - 1 do
    fields[#fields + 1] = cell_field(it, cell)
  end
  -- If all of these are not enough, the one that is filling must leave too.
  local last = newest
  for i, counted in ipairs(redis.call('HMGET', CELLS, unpack(fields))) do
    amount = amount - tonumber(counted or 0)
    if amount <= SLACK then
      last = newest - CELLS_PER_WINDOW + i - 1
      break
    end
  end
  return begin_of(it, last + CELLS_PER_WINDOW + 1) - now
end

-- The time until one meter allows its part, 0: now.
local function wait(it)
  local longest = 0
  if it.takes <= 0 then return 0 end
  if it.bucket then
    local lacking = math.min(it.takes, it.capacity) - it.level
    if lacking > 0 then
      -- Rounded up and one more, so that the amount is there at the promised time.
      longest = it.rate > 0 and math.ceil(lacking / it.rate * 1e6) + 1 or NEVER
    end
  end
  local taken = used(it)
  if not taken then return longest end
  if it.amount <= 0 then return NEVER end
  local excess = taken + it.takes - it.amount
  -- What is larger than the whole limit passes when the window is empty: else it would wait for ever.
  if excess <= SLACK or taken <= SLACK then return longest end
  if it.semantics == 'sliding' then
    return math.max(longest, until_left(it, math.min(excess, taken)))
  end
  local ends = (it.window_number + 1) * it.window + it.phase
  return math.max(longest, ends - now)
end

local function judge()
  local _, refused_for = breaker(now)
  if obey_breaker and refused_for > 0 then return refused_for, 'breaker' end
  local paused = get('paused_until', 0) - now
  if paused > 0 then return paused, 'pause' end
  if in_flight_max and open + in_flight >= in_flight_max then return LOOK_AGAIN, 'concurrency' end
  local longest, why = 0, ''
  for i, it in ipairs(meters) do
    local needed = wait(it)
    if needed > longest then longest, why = needed, tostring(i) end
  end
  return longest, why
end

local longest, why = judge()
if why == '' then
  for _, it in ipairs(meters) do
    take(it, it.takes, now)
  end
  -- In a half-open breaker this one is the probe.
  if breaker(now) == 'half-open' then set('probe_at', now) end
  in_flight = in_flight + 1
end
local mirror = finish(now, meters, instance, lease, in_flight, count, open)
return {{now, math.min(longest, NEVER), why}, mirror}
