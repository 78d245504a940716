-- May one attempt start now? Takes from every meter or from none.
--
-- Answers {{now, wait, why}, mirror}. `why` is empty when granted; else 'breaker', 'pause',
-- 'concurrency', or the place of the limit that keeps it waiting longest.

-- A meter that never fills is worth asking about again: its limit may be changed meanwhile.
local NEVER = 60e6
local FOR_EVER = math.huge
-- When a call of another instance ends is not known.
local LOOK_AGAIN = 50e3
-- Whoever waits for longer asks again within this time; so much later, it has died or given up.
local ASKED_EVERY = 1e6
local GRACE = 250e3
-- Most places of one instance in the line, and by how much requests of one size may differ.
local PLACES_MAX = 4
local SAME_SIZE = 2

load()
local now = clock()
local instance, in_flight, lease = word(), number(), number()
local obey_breaker, in_flight_max = number() == 1, number()
local input, output = number(), number()

local meters = {}
local rate_factor = factor()
for i = 1, number() do
  meters[i] = meter(now, rate_factor)
  -- How much of it a request takes: itself, and which of its tokens.
  meters[i].per = {number(), number(), number()}
end
local count, open, places = others(now, instance)

-- The amount of a meter that so many tokens take.
local function amount_of(it, demand)
  return it.per[1] + it.per[2] * demand.input + it.per[3] * demand.output
end

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

-- The time until one meter allows `takes` after `ahead` has been taken, 0: now.
local function wait(it, takes, ahead)
  local longest = 0
  if takes <= 0 then return 0 end
  if it.bucket then
    local lacking = math.min(takes, it.capacity) + ahead - it.level
    if lacking > 0 then
      -- Rounded up and one more, so that the amount is there at the promised time.
      longest = it.rate > 0 and math.ceil(lacking / it.rate * 1e6) + 1 or FOR_EVER
    end
  end
  local taken = used(it)
  if not taken then return longest end
  if it.amount <= 0 then return FOR_EVER end
  taken = taken + ahead
  local excess = taken + takes - it.amount
  -- What is larger than the whole limit passes when the window is empty: else it would wait for ever.
  if excess <= SLACK or taken <= SLACK then return longest end
  if it.semantics == 'fixed' then
    local whole = math.max(0, math.floor((ahead + takes) / it.amount - SLACK))
    local ends = (it.window_number + 1 + whole) * it.window + it.phase
    return math.max(longest, ends - now)
  end
  local leaves = math.min(excess, taken)
  -- Behind another the wait is an estimate, and need not look at every cell.
  local after = ahead > 0 and it.window * leaves / it.amount or until_left(it, leaves)
  return math.max(longest, after)
end

-- The same for all meters, and the place of the one that keeps it waiting longest.
local function wait_for_meters(demand, ahead)
  local longest, why = 0, ''
  for i, it in ipairs(meters) do
    local needed = wait(it, amount_of(it, demand), ahead and amount_of(it, ahead) or 0)
    if needed > longest then longest, why = needed, tostring(i) end
  end
  return longest, why
end

-- The line. Whoever asks for little and asks again at once would take every refill before a larger
-- request finds enough: so nobody takes what was first told to wait. An instance has few places, one for
-- each size of request; a place is lost when nobody asks for it any more.

local demand = {input = input, output = output}

local function tokens(one)
  return one.input + one.output
end

-- The places of an instance that are still held.
local function places_of(name)
  local held = {}
  for since, ends, of_input, of_output in
    string.gmatch(places[name] or '', '(%S+) (%S+) (%S+) (%S+)')
  do
    if tonumber(ends) > now then
      held[#held + 1] = {
        name = name, since = tonumber(since), ends = tonumber(ends),
        input = tonumber(of_input), output = tonumber(of_output),
      }
    end
  end
  return held
end

local own_places = places_of(instance)

-- Whether this claim may use a place of its instance. What a request takes is an estimate that may
-- change while it waits.
local function is_for(place)
  local own, other = tokens(place), tokens(demand)
  return own <= SAME_SIZE * other and other <= SAME_SIZE * own
end

local function first_in_line()
  local first
  for name in pairs(places) do
    for _, place in ipairs(places_of(name)) do
      if not first or place.since < first.since
        or place.since == first.since and name < first.name
      then
        first = place
      end
    end
  end
  return first
end

local function waits()
  local longest, why = wait_for_meters(demand)
  local first = first_in_line()
  if first and not (first.name == instance and is_for(first)) then
    local behind, because = wait_for_meters(demand, first)
    if because == '' then return 0, '' end
    longest, why = math.max(math.min(behind, first.ends - now), longest), because
  end
  if why == '' then return 0, '' end
  -- An instance that sleeps for so long would be late for what else it waits for.
  for _, place in ipairs(own_places) do
    if not is_for(place) then
      longest = math.min(longest, math.max(place.ends - GRACE - now, LOOK_AGAIN))
    end
  end
  return longest, why
end

-- Who waits for a refill gets a place in the line, or keeps it. Who waits for something else gains
-- nothing by holding up the others: a limit that is never enough, or a window's end, at which there is
-- enough for everybody.
local function waits_for_refill()
  for _, it in ipairs(meters) do
    if it.semantics == 'fixed' then
      local taken, rest = used(it), left(it)
      if taken > SLACK and amount_of(it, demand) > rest + SLACK then return false end
    end
  end
  return wait_for_meters(demand) < NEVER
end

local function own_place()
  for i, place in ipairs(own_places) do
    if is_for(place) then return i, place end
  end
end

local function leave_line()
  local i = own_place()
  if i then table.remove(own_places, i) end
end

local function stand_in_line(at_least)
  if not waits_for_refill() then return leave_line() end
  local _, place = own_place()
  if not place then
    if #own_places == PLACES_MAX then return end
    place = {since = now, input = input, output = output}
    own_places[#own_places + 1] = place
  elseif tokens(demand) > tokens(place) then
    place.input, place.output = input, output
  end
  place.ends = now + math.min(at_least, ASKED_EVERY) + GRACE
end

-- How long nobody may start, and why.
local function barred()
  local _, refused_for = breaker(now)
  if obey_breaker and refused_for > 0 then return refused_for, 'breaker' end
  local paused = get('paused_until', 0) - now
  if paused > 0 then return paused, 'pause' end
  if in_flight_max and open + in_flight >= in_flight_max then return LOOK_AGAIN, 'concurrency' end
  return 0, ''
end

local at_least, why = barred()
if why == '' then
  at_least, why = waits()
  if why ~= '' then stand_in_line(at_least) end
end
if why == '' then
  for _, it in ipairs(meters) do
    take(it, amount_of(it, demand), now)
  end
  -- In a half-open breaker this one is the probe.
  if breaker(now) == 'half-open' then set('probe_at', now) end
  in_flight = in_flight + 1
  leave_line()
end
local kept = {}
for i, place in ipairs(own_places) do
  kept[i] = string.format('%.0f %.0f %.17g %.17g', place.since, place.ends, place.input, place.output)
end
local line = table.concat(kept, ' ')
local mirror = finish(now, meters, instance, lease, in_flight, line, count, open)
return {{now, math.ceil(math.min(at_least, NEVER)), why}, mirror}
