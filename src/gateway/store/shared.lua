-- What both scripts begin with: the registers of one scope, its clock, meters, breaker and leases.
--
-- A script runs alone inside the server, so nothing changes between its lines. `script.rs` says what
-- ARGV holds and reads the answer; the rules are those of weir's `admission`, and a test holds the two
-- against each other. Times are whole microseconds of the server's clock.

local STATE, CELLS, LEASES = KEYS[1], KEYS[2], KEYS[3]

-- A sliding window counts the cell that is filling and so many before it.
local CELLS_PER_WINDOW = 240
-- Windows of this length and more have no pace: a day's work may be done in an hour.
local UNPACED = 3600e6
-- Rounding that is no excess.
local SLACK = 1e-6
-- After a clock was set back by more than this, registers would lie in the future for too long.
local SET_BACK = 60e6
-- What the provider bears, and whether it fails, is remembered for so long without a call.
local KEEP_MIN = 3600e6
-- Their time to live is set anew this often.
local RENEW_EVERY = 60e6

-- A probe that was not heard of for so long gives its place to another.
local PROBE_LOST = 30e6

-- How the factor grows with good time, a cubic (RFC 9438) of seconds.
local HOLD = 5
local CURVE = 3e-6

local place = 0
local function word()
  place = place + 1
  return ARGV[place]
end

-- Absent is the empty text, and nil here.
local function number()
  return tonumber(word())
end

local function exact(value)
  return string.format('%.17g', value)
end

-- Registers are read at once and written at once, the changed ones only.

local registers, changed = {}, {}

local function get(name, otherwise)
  local value = registers[name]
  if value == nil then return otherwise end
  return value
end

local function set(name, value)
  if registers[name] ~= value then
    registers[name], changed[name] = value, value
  end
end

local function load()
  local flat = redis.call('HGETALL', STATE)
  for i = 1, #flat, 2 do
    -- What is no number is a meter's pack of them.
    registers[flat[i]] = tonumber(flat[i + 1]) or flat[i + 1]
  end
end

-- The server's clock; ARGV's own time only in tests. It never runs backwards: after a small step back
-- it stands still, after a large one the scope begins anew, with empty paces.
local function clock()
  local now = number()
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1e6 + time[2]
  end
  local latest = get('latest', now)
  if latest - now > SET_BACK then
    redis.call('DEL', STATE, CELLS, LEASES)
    registers, latest = {}, now
  end
  now = math.max(now, latest)
  set('latest', now)
  return now
end

-- Meters. All registers of one are one field of STATE, its numbers in this order: `level` of its pace,
-- right at `at`, and the `rate` since; `sum` of its cells, of which the newest is numbered `cell` and
-- holds `filling`, the others are in CELLS; `used` in the fixed window numbered `window_number`, where
-- windows begin `phase` after the clock's.

local REGISTERS = {
  'level', 'at', 'rate', 'sum', 'cell', 'filling', 'used', 'window_number', 'phase',
}
local PACKED = '%.17g' .. string.rep(' %.17g', #REGISTERS - 1)

local function cell_field(it, cell)
  return string.format('%s:%.0f', it.name, cell)
end

-- The length of a cell, in nanoseconds.
local function cell_length(it)
  return math.floor(it.window * 1e3 / CELLS_PER_WINDOW)
end

-- The number of the cell that `time` falls in. In two steps, so that every product is exact.
local function cell_of(it, time)
  local length = cell_length(it)
  local thousands = math.floor(time / length)
  return thousands * 1e3 + math.floor((time - thousands * length) * 1e3 / length)
end

-- When a cell begins: the first whole microsecond that `cell_of` counts to it.
local function begin_of(it, cell)
  local length = cell_length(it)
  local thousands = math.floor(cell / 1e3)
  return thousands * length + math.ceil((cell - thousands * 1e3) * length / 1e3)
end

-- The number of the fixed window that `time` falls in.
local function window_of(it, time)
  return math.floor((time - it.phase) / it.window)
end

-- Begins the cell of `now`, and lets go of those that have left the window. Only those are read, each
-- once in its life.
local function turn(it, now)
  local newest, cell = it.cell, cell_of(it, now)
  if cell <= newest then return end
  it.cell = cell
  local sum, filling = it.sum, it.filling
  it.filling = 0
  local last = math.min(cell - CELLS_PER_WINDOW - 1, newest)
  if filling ~= 0 and last < newest then
    redis.call('HSET', CELLS, cell_field(it, newest), exact(filling))
  end
  local leaving = {}
  for old = newest - CELLS_PER_WINDOW, last do
    leaving[#leaving + 1] = cell_field(it, old)
  end
  if #leaving == 0 then return end
  for _, amount in ipairs(redis.call('HMGET', CELLS, unpack(leaving))) do
    sum = sum - tonumber(amount or 0)
  end
  redis.call('HDEL', CELLS, unpack(leaving))
  -- With no cell left, what the sum still holds is rounding.
  it.sum = (last == newest or sum < SLACK) and 0 or sum
end

-- The most that a pace holds at this rate: one request must fit, however slow it is.
local function capacity(it, rate)
  return math.max(rate * (it.paced and it.burst or it.window) / 1e6, 1)
end

-- The registers of a meter, as they were last packed.
local function unpacked(it)
  local packed = get(it.name)
  if packed then
    local i = 0
    for value in string.gmatch(packed, '%S+') do
      i = i + 1
      it[REGISTERS[i]] = tonumber(value)
    end
    return true
  end
  for _, name in ipairs(REGISTERS) do
    it[name] = 0
  end
  return false
end

local function packed(it)
  local values = {}
  for i, name in ipairs(REGISTERS) do
    values[i] = it[name]
  end
  return string.format(PACKED, unpack(values))
end

-- Reads one limit from ARGV and brings its meter to `now`: what flowed in, what left the window.
local function meter(now, factor)
  local it = {
    name = word(), amount = number(), window = number(), semantics = word(), burst = number(),
  }
  it.paced = it.window < UNPACED
  it.bucket = it.paced or it.semantics == 'bucket'
  local known = unpacked(it)
  if it.bucket then
    local rate = it.amount / (it.window / 1e6) * (it.paced and factor or 1)
    -- Counted a cell too wide, the window would be full before its oldest amount leaves.
    if it.semantics == 'sliding' then rate = rate * CELLS_PER_WINDOW / (CELLS_PER_WINDOW + 1) end
    it.capacity = capacity(it, rate)
    if known then
      -- Until now the rate of the last call was in force. During a pause nothing flows in.
      local since = math.max(it.at, it.paced and get('paused_until', 0) or 0)
      local passed = math.max(0, now - since) / 1e6
      it.level = math.min(it.level + passed * it.rate, capacity(it, it.rate), it.capacity)
    elseif not it.paced or rate * it.burst / 1e6 < 1 then
      -- A pace begins empty, for what the provider has is not known; but nothing of a day is used, and
      -- the one request that a slow meter holds need not wait for its refill.
      it.level = it.capacity
    end
    it.rate, it.at = rate, now
  end
  if it.semantics == 'sliding' then
    turn(it, now)
  elseif it.semantics == 'fixed' and window_of(it, now) ~= it.window_number then
    it.window_number, it.used = window_of(it, now), 0
  end
  return it
end

-- What was taken in the meter's window; nil for a pace alone.
local function used(it)
  if it.semantics == 'sliding' then return math.max(0, it.sum) end
  if it.semantics == 'fixed' then return math.max(0, it.used) end
end

-- Takes an amount from a meter, or gives a negative one back where it was taken at `time`, if that
-- is still counted.
local function take(it, amount, time)
  if it.bucket then it.level = math.min(it.level - amount, it.capacity) end
  if it.semantics == 'sliding' then
    local cell, newest = cell_of(it, time), it.cell
    if cell < newest - CELLS_PER_WINDOW then return end
    it.sum = it.sum + amount
    if cell == newest then
      it.filling = it.filling + amount
    else
      local field = cell_field(it, cell)
      local counted = tonumber(redis.call('HGET', CELLS, field) or 0)
      redis.call('HSET', CELLS, field, exact(counted + amount))
    end
  elseif it.semantics == 'fixed' and window_of(it, time) == it.window_number then
    it.used = it.used + amount
  end
end

-- What could be taken in this window, 0 to the limit; of a pace alone, its own level.
local function left(it)
  local taken = used(it)
  local rest = taken and it.amount - taken or it.amount * it.level / it.capacity
  return math.min(math.max(rest, 0), it.amount)
end

-- The share of the rate that the provider bears, by what its answers said so far.
local function factor()
  if get('cut_at', 0) == 0 then return 1 end
  local base, top = get('base', 1), get('top', 1)
  local t = math.max(0, get('good_for', 0) - HOLD)
  local k = ((top - base) / CURVE) ^ (1 / 3)
  return math.min(math.max(top + CURVE * (t - k) ^ 3, base), 1)
end

-- 'closed'; 'open' and the time left; 'half-open' and the time until its probe is lost, 0 without one.
local function breaker(now)
  local open_until, probe_at = get('open_until', 0), get('probe_at', 0)
  if open_until == 0 then return 'closed', 0 end
  if now < open_until then return 'open', open_until - now end
  if probe_at == 0 then return 'half-open', 0 end
  return 'half-open', math.max(0, probe_at + PROBE_LOST - now)
end

-- How many other instances live, what they have open, and the places of all in the line, by name.
-- Whoever is past its lease is gone, with all that it had. LEASES has one field an instance: until when
-- it lives, its open calls, and its places, as `claim.lua` writes them.
local function others(now, instance)
  local count, open, places = 0, 0, {}
  local flat = redis.call('HGETALL', LEASES)
  for i = 1, #flat, 2 do
    local ends, calls, line = string.match(flat[i + 1], '^(%d+) (%d+) ?(.*)$')
    if tonumber(ends) <= now then
      redis.call('HDEL', LEASES, flat[i])
    else
      if line ~= '' then places[flat[i]] = line end
      if flat[i] ~= instance then count, open = count + 1, open + calls end
    end
  end
  return count, open, places
end

-- Writes what has changed, and says how things stand. `count` and `open` are those of the others.
local function finish(now, meters, instance, lease, in_flight, line, count, open)
  local held = string.format('%.0f %d %s', now + lease, in_flight, line or '')
  redis.call('HSET', LEASES, instance, held)
  local window, debt, lefts = 0, 0, {}
  for i, it in ipairs(meters) do
    window = math.max(window, it.window)
    if it.bucket and it.rate > 0 then debt = math.max(debt, -it.level / it.rate * 1e6) end
    lefts[i] = exact(left(it))
    set(it.name, packed(it))
  end
  local paused = math.max(0, get('paused_until', 0) - now)
  local renew = now >= get('renew_at', 0)
  if renew then set('renew_at', now + RENEW_EVERY) end
  local fields = {}
  for name, value in pairs(changed) do
    fields[#fields + 1] = name
    fields[#fields + 1] = type(value) == 'number' and exact(value) or value
  end
  if #fields > 0 then redis.call('HSET', STATE, unpack(fields)) end
  if renew then
    -- What nobody asks for expires when nothing of it matters any more, all of it at once. Cells may
    -- all have left: a field of no meter keeps their key, and so its time to live.
    redis.call('HSET', CELLS, 'renewed', exact(now))
    local keep = math.ceil(math.max(KEEP_MIN, 2 * window, lease, paused + debt) / 1e3)
    for _, key in ipairs(KEYS) do
      redis.call('PEXPIRE', key, keep)
    end
  end
  local state, detail = breaker(now)
  return {paused, exact(factor()), {state, detail}, count + 1, open + in_flight, lefts}
end
