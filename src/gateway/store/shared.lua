-- What both scripts begin with: the registers of one scope, its clock, meters, breaker and leases.
--
-- A script runs alone inside the server, so nothing changes between its lines. `script.rs` says what
-- ARGV holds and reads the answer; the rules are those of weir's `admission`, and a test holds the two
-- against each other. Times are whole microseconds of the server's clock.

local STATE, CELLS, LEASES, OPEN = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

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
    registers[flat[i]] = tonumber(flat[i + 1])
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
    redis.call('DEL', STATE, CELLS, LEASES, OPEN)
    registers, latest = {}, now
  end
  now = math.max(now, latest)
  set('latest', now)
  return now
end

-- Meters. The registers of each begin with its name: `level` of its pace, right at `at`; `sum` of its
-- cells, up to the one numbered `cell`; `used` in the fixed window numbered `window`.

local function of(it, name, otherwise)
  return get(it.name .. ':' .. name, otherwise)
end

local function put(it, name, value)
  set(it.name .. ':' .. name, value)
end

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
  return math.floor((time - of(it, 'phase', 0)) / it.window)
end

-- Lets go of the cells that have left the window. Only those are read, each once in its life.
local function turn(it, now)
  local newest, cell = of(it, 'cell', 0), cell_of(it, now)
  if cell <= newest then return end
  put(it, 'cell', cell)
  local sum = of(it, 'sum', 0)
  if sum == 0 then return end
  local first = newest - CELLS_PER_WINDOW
  local last = math.min(cell - CELLS_PER_WINDOW - 1, newest)
  if last < first then return end
  local leaving = {}
  for old = first, last do
    leaving[#leaving + 1] = cell_field(it, old)
  end
  for _, amount in ipairs(redis.call('HMGET', CELLS, unpack(leaving))) do
    sum = sum - tonumber(amount or 0)
  end
  redis.call('HDEL', CELLS, unpack(leaving))
  -- With no cell left, what the sum still holds is rounding.
  put(it, 'sum', (last == newest or sum < SLACK) and 0 or sum)
end

-- The most that a pace holds at this rate: one request must fit, however slow it is.
local function capacity(it, rate)
  return math.max(rate * (it.paced and it.burst or it.window) / 1e6, 1)
end

-- Reads one limit from ARGV and brings its meter to `now`: what flowed in, what left the window.
local function meter(now, factor)
  local it = {
    name = word(), amount = number(), window = number(), semantics = word(), burst = number(),
  }
  it.paced = it.window < UNPACED
  it.bucket = it.paced or it.semantics == 'bucket'
  if it.bucket then
    it.rate = it.amount / (it.window / 1e6) * (it.paced and factor or 1)
    it.capacity = capacity(it, it.rate)
    -- What the provider still has for us is not known at first: a pace begins empty.
    local level = of(it, 'level', it.paced and 0 or it.capacity)
    -- Until now the rate of the last call was in force. During a pause nothing flows in.
    local rate = of(it, 'rate', it.rate)
    local since = math.max(of(it, 'at', now), it.paced and get('paused_until', 0) or 0)
    local passed = math.max(0, now - since) / 1e6
    level = math.min(level + passed * rate, capacity(it, rate))
    put(it, 'level', math.min(level, it.capacity))
    put(it, 'rate', it.rate)
    put(it, 'at', now)
  end
  if it.semantics == 'sliding' then
    turn(it, now)
  elseif it.semantics == 'fixed' and window_of(it, now) ~= of(it, 'window') then
    put(it, 'window', window_of(it, now))
    put(it, 'used', 0)
  end
  return it
end

-- What was taken in the meter's window; nil for a pace alone.
local function used(it)
  if it.semantics == 'sliding' then return math.max(0, of(it, 'sum', 0)) end
  if it.semantics == 'fixed' then return math.max(0, of(it, 'used', 0)) end
end

-- Takes an amount from a meter, or gives a negative one back where it was taken at `time`, if that
-- is still counted.
local function take(it, amount, time)
  if it.bucket then
    put(it, 'level', math.min(of(it, 'level') - amount, it.capacity))
  end
  if it.semantics == 'sliding' then
    local cell = cell_of(it, time)
    if cell >= of(it, 'cell') - CELLS_PER_WINDOW then
      local field = cell_field(it, cell)
      local counted = tonumber(redis.call('HGET', CELLS, field) or 0)
      redis.call('HSET', CELLS, field, exact(counted + amount))
      put(it, 'sum', of(it, 'sum', 0) + amount)
    end
  elseif it.semantics == 'fixed' and window_of(it, time) == of(it, 'window') then
    put(it, 'used', of(it, 'used') + amount)
  end
end

-- What could be taken in this window, 0 to the limit; of a pace alone, its own level.
local function left(it)
  local taken = used(it)
  local rest = taken and it.amount - taken or it.amount * of(it, 'level') / it.capacity
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

-- Notes that this instance lives and what it has open. Whoever is past its lease is gone, with what
-- it had open.
local function renew(now, instance, in_flight, lease)
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', LEASES, '-inf', exact(now))) do
    redis.call('ZREM', LEASES, gone)
    redis.call('HDEL', OPEN, gone)
  end
  redis.call('ZADD', LEASES, exact(now + lease), instance)
  redis.call('HSET', OPEN, instance, in_flight)
end

local function open_calls()
  local open = 0
  for _, calls in ipairs(redis.call('HVALS', OPEN)) do
    open = open + calls
  end
  return open
end

-- Writes the registers, lets what nobody asks for expire when nothing of it matters any more, and
-- says how things stand.
local function finish(now, meters, lease)
  local fields = {}
  for name, value in pairs(changed) do
    fields[#fields + 1] = name
    fields[#fields + 1] = exact(value)
  end
  if #fields > 0 then redis.call('HSET', STATE, unpack(fields)) end
  local window, debt, lefts = 0, 0, {}
  for i, it in ipairs(meters) do
    window = math.max(window, it.window)
    if it.bucket and it.rate > 0 then debt = math.max(debt, -of(it, 'level') / it.rate * 1e6) end
    lefts[i] = exact(left(it))
  end
  local paused = math.max(0, get('paused_until', 0) - now)
  -- What was counted has left after one window and a cell.
  local keep = math.max(2 * window, lease)
  redis.call('PEXPIRE', CELLS, exact(math.ceil(keep / 1e3)))
  keep = math.max(keep, paused + debt, KEEP_MIN)
  for _, key in ipairs({STATE, LEASES, OPEN}) do
    redis.call('PEXPIRE', key, exact(math.ceil(keep / 1e3)))
  end
  local state, detail = breaker(now)
  local instances = redis.call('ZCARD', LEASES)
  return {paused, exact(factor()), {state, detail}, instances, open_calls(), lefts}
end
