-- How one attempt ended: settles its reservation, believes the provider's own meters, and lets pause,
-- breaker and rate factor learn from it. Answers the mirror.

-- The breaker: outcomes are counted in slices; the present one and the one before decide.
local SLICE = 10e6
local OUTCOMES_MIN = 10
local FAULT_SHARE = 0.5
local CHANCE_MAX = 1e-6
local MARGIN = 0.82
local USUAL_MAX = 0.5
local RARE = 0.05
local OPEN_FIRST = 2e6
local OPEN_MAX = 30e6
local OPEN_DEAD = 30e6

-- How quickly strain, and what share of faults is usual, follow the outcomes.
local GAIN = 0.01

-- The rate: from what strain on it is cut, and by how much.
local STRAIN_CUT = 0.012
local CUT_MIN = 0.04
local CUT_MAX = 0.3
local COOLDOWN = 1e6
local FLOOR = 0.1
-- Of a longer silence no more is good time.
local GAP = 1
-- Readings speak of whole windows, not of slices of them.
local MINUTE = 60e6

load()
local now = clock()
local instance, in_flight, lease = word(), number(), number()
local faults_in_row, adaptive, spread = number(), number() == 1, number()
local receipt, outcome, pause = number(), word(), number()
local started = receipt or now

-- The provider says that so much is left: never believe that it is more.
local function believe(it, remaining, limit, reset)
  if it.window < MINUTE then return end
  if it.bucket then
    it.level = math.min(it.level, math.max(remaining, -it.capacity))
  end
  limit = math.max(limit or 0, it.amount)
  if it.semantics == 'fixed' then
    -- A window that is just ending says nothing about the next.
    if reset == 0 then return end
    it.used = math.max(it.used, limit - remaining)
    if reset and reset <= it.window then
      it.phase = (now + reset) % it.window
      it.window_number = window_of(it, now)
    end
  elseif not it.bucket then
    -- A long window has no pace that could hold back what others have taken.
    local unseen = limit - remaining - used(it)
    if unseen > 0 then take(it, unseen, now) end
  end
end

-- Counts an outcome.
local function tally(good)
  local slice, newest = math.floor(now / SLICE), get('slice', 0)
  if slice > newest then
    local follows = slice == newest + 1
    set('prev_good', follows and get('good', 0) or 0)
    set('prev_bad', follows and get('bad', 0) or 0)
    set('good', 0)
    set('bad', 0)
    set('slice', slice)
  end
  if good then
    local with_row = 1 - (1 - get('usual', 0)) * (1 - GAIN) ^ get('faults_in_row', 0)
    set('usual', with_row * (1 - GAIN))
    set('good', get('good', 0) + 1)
    set('faults_in_row', 0)
  else
    set('bad', get('bad', 0) + 1)
    set('faults_in_row', get('faults_in_row', 0) + 1)
  end
end

local function is_failing(pending)
  local faults = get('bad', 0) + get('prev_bad', 0)
  local all = faults + get('good', 0) + get('prev_good', 0)
  -- The shortest row that chance does not explain.
  local row = get('faults_in_row', 0)
  local usual = math.min(math.max(get('usual', 0), 1e-300), USUAL_MAX)
  local beyond = usual < RARE and 0 or math.log(CHANCE_MAX) / math.log(usual) + pending
  if row >= math.max(faults_in_row, beyond) then return true end
  return all >= OUTCOMES_MIN and faults >= FAULT_SHARE * (all + pending) + MARGIN * math.sqrt(all)
end

-- ## closed, open, half-open => open
local function open(span)
  if breaker(now) ~= 'open' then set('opened_at', now) end
  set('open_for', span)
  set('open_until', now + math.ceil(span * (1 + spread)))
  set('probe_at', 0)
end

-- ## half-open => closed
local function close()
  for _, name in ipairs({
    'open_until', 'probe_at', 'faults_in_row', 'good', 'bad', 'prev_good', 'prev_bad',
  }) do
    set(name, 0)
  end
  set('open_for', OPEN_FIRST)
end

local function judge_breaker(pending)
  local state, probe_at = breaker(now), get('probe_at', 0)
  -- Begun before the breaker last opened: it says nothing about now.
  local stale = started < get('opened_at', 0)
  if outcome == 'neither' then
    -- Only the probe itself frees its place.
    if state == 'half-open' and probe_at > 0 and started >= probe_at then set('probe_at', 0) end
  elseif outcome == 'exhausted' then
    open(OPEN_DEAD)
  elseif stale or state == 'open' then
    return
  elseif outcome == 'good' or outcome == 'throttled' or outcome == 'crowded' then
    -- Who throttles is healthy.
    if state == 'half-open' then close() end
    tally(true)
  elseif state == 'half-open' then
    open(math.min(get('open_for', OPEN_FIRST) * 2, OPEN_MAX))
  else
    tally(false)
    if is_failing(pending) then open(get('open_for', OPEN_FIRST)) end
  end
end

local function judge_rate()
  -- Frozen, or sent at the pace before the last cut.
  if not adaptive or started < get('cut_at', 0) then return end
  local strain = get('strain', 0)
  if outcome == 'good' then
    local good_at = get('good_at', 0)
    local quiet = good_at == 0 and 0 or math.min((now - good_at) / 1e6, GAP)
    set('strain', strain - strain * GAIN)
    set('good_for', get('good_for', 0) + quiet)
    set('good_at', now)
  elseif outcome == 'throttled' then
    strain = strain + (1 - strain) * GAIN
    local cut_at = get('cut_at', 0)
    if strain > STRAIN_CUT and (cut_at == 0 or now - cut_at >= COOLDOWN) then
      local top = factor()
      set('base', math.max(FLOOR, top * (1 - math.min(math.max(strain, CUT_MIN), CUT_MAX))))
      set('top', top)
      set('cut_at', now)
      set('good_for', 0)
      set('good_at', now)
      strain = 0
    end
    set('strain', strain)
  end
end

local meters = {}
local rate_factor = factor()
for i = 1, number() do
  local it = meter(now, rate_factor)
  local reserved, charged = number(), number()
  local refused, remaining, limit, reset = number() == 1, number(), number(), number()
  -- Without a receipt nothing was taken here: the whole charge is new.
  local more = (charged or 0) - (receipt and reserved or 0)
  if more ~= 0 then take(it, more, started) end
  if remaining then believe(it, remaining, limit, reset) end
  -- What refused has nothing left, whatever else was said.
  if refused then believe(it, 0) end
  meters[i] = it
end
local count, open_elsewhere, places = others(now, instance)

judge_breaker(open_elsewhere + in_flight)
judge_rate()
if pause > 0 then
  set('paused_until', math.max(get('paused_until', 0), now + pause))
  -- Nothing that was saved up leaves at once after a pause; a debt stays.
  for _, it in ipairs(meters) do
    if it.paced then it.level = math.min(it.level, 0) end
  end
end
return finish(now, meters, instance, lease, in_flight, places[instance], count, open_elsewhere)
