-- A rate budget that many clusters share: the steps of rate_budget.py and rate_meter.py, one call
-- at a time. Numbers are whole and below 2^53, so that both decide alike.
--
-- KEYS[1]: name of the budget, in braces: all its keys lie on one node of a Redis cluster.
-- ARGV[1]: what to do; ARGV[2]: limits, ARGV[3]: arguments, both JSON, 0 for no limit;
-- ARGV[4]: time in microseconds; 0: this server's.

local SECOND = 1000000
local AHEAD, AHEAD_SHARED, SOON, IDLE = SECOND / 2, SECOND / 20, SECOND / 40, SECOND
local FIRST_PAUSE, LONGEST_PAUSE = SECOND / 4, 30 * SECOND
local PARTS, CATCH_UP = 500, 50
-- Nobody has asked for so many seconds: nothing of the budget counts any more.
local KEPT = 2 * 86400

local limits = cjson.decode(ARGV[2])
local given = cjson.decode(ARGV[3])
local name = KEYS[1]

local function text(number)
  return string.format('%.0f', number)
end

local function read(key)
  local flat, found = redis.call('HGETALL', key), {}
  for at = 1, #flat, 2 do found[flat[at]] = flat[at + 1] end
  return found
end

local function write(key, field, value)
  redis.call('HSET', key, field, value)
  redis.call('EXPIRE', key, KEPT)
end

local state = read(name)
for field, value in pairs(state) do state[field] = tonumber(value) end

local now = tonumber(ARGV[4])
if now == 0 then
  local time = redis.call('TIME')
  -- The server's clock may be set back; the budget's never goes back.
  now = math.max(tonumber(time[1]) * SECOND + tonumber(time[2]), state.now or 0)
end
if not state.now then
  state = {last_start = now, free_requests = now, free_tokens = now, total_requests = 0,
           total_tokens = 0, refusals = 0, successes = 0, spent = 0}
  state.cool_since, state.cool_until = now - limits.ramp, now - limits.ramp
end
-- Absent in a budget, or from one who asks, of before there was this meter.
state.free_inputs, state.total_inputs = state.free_inputs or now, state.total_inputs or 0
limits.inputs, given.inputs = limits.inputs or 0, given.inputs or 0
state.now = now
local day = math.floor(now / (86400 * SECOND))
if state.day ~= day then state.day, state.spent = day, 0 end

-- Meters.

-- The account's limits, where its provider has stated lower ones than the settings; the last counts.

local function heed(stated)
  for _, meter in ipairs({'requests', 'tokens'}) do
    local told = 'stated_' .. meter
    if stated and stated[meter] > 0 then state[told] = stated[meter] end
    local limit = state[told] or 0
    if limit > 0 and (limits[meter] == 0 or limit < limits[meter]) then limits[meter] = limit end
  end
end

heed(given.stated)

local part_length = math.max(1, math.floor(limits.window / PARTS))
local catch_up = math.floor(limits.window / CATCH_UP)

local function charged(meter, amount)
  return limits[meter] == 0 and amount or math.min(amount, limits[meter])
end

local function share(meter, amount)
  return limits[meter] == 0 and 0 or math.ceil(amount * limits.window / limits[meter])
end

local function parts_of(meter)
  local parts, order = {}, {}
  for part, amount in pairs(read(name .. ':' .. meter)) do
    parts[tonumber(part)] = tonumber(amount)
    order[#order + 1] = tonumber(part)
  end
  table.sort(order)
  return parts, order
end

local function add(meter, part, amount)
  state['total_' .. meter] = state['total_' .. meter] + amount
  local key = name .. ':' .. meter
  -- Minus zero becomes zero.
  redis.call('HINCRBY', key, text(part), text(amount + 0))
  redis.call('EXPIRE', key, KEPT)
  return part
end

local function forget_parts(meter)
  local last = math.floor((now - limits.window) / part_length) - 1
  local forgotten = 'forgotten_' .. meter
  if last <= (state[forgotten] or 0) then return end
  state[forgotten] = last
  for part, amount in pairs((parts_of(meter))) do
    if part <= last then
      state['total_' .. meter] = state['total_' .. meter] - amount
      redis.call('HDEL', name .. ':' .. meter, text(part))
    end
  end
end

local function meter_start(meter, at, amount)
  if limits[meter] == 0 then return at end
  local start, total = math.max(at, state['free_' .. meter]), state['total_' .. meter]
  if total + amount <= limits[meter] then return start end
  local parts, order = parts_of(meter)
  for _, part in ipairs(order) do
    local counts_until = (part + 1) * part_length + limits.window
    if counts_until > start then
      if total + amount <= limits[meter] then return start end
      start = counts_until
    end
    total = total - parts[part]
  end
  return start
end

local function take(meter, start, arrival, amount, takes_up)
  local free = 'free_' .. meter
  state[free] = math.max(state[free], start - catch_up) + takes_up
  return add(meter, math.floor(arrival / part_length), amount)
end

local function change(meter, part, amount, actual)
  local free = 'free_' .. meter
  state[free] = state[free] + share(meter, actual) - share(meter, amount)
  if redis.call('HEXISTS', name .. ':' .. meter, text(part)) == 1 then
    add(meter, part, -amount)
    add(meter, math.min(part, math.floor(now / part_length)), actual)
  end
end

-- Leases, who waits, tenants.

local function unpacked(key)
  local found, count = read(name .. ':' .. key), 0
  for field, value in pairs(found) do
    found[field], count = cmsgpack.unpack(value), count + 1
  end
  return found, count
end

local function pack(key, field, value)
  write(name .. ':' .. key, field, cmsgpack.pack(value))
end

local function drop(key, field)
  redis.call('HDEL', name .. ':' .. key, field)
end

local function live(key)
  local found, count = unpacked(key)
  for field, value in pairs(found) do
    if value['until'] <= now then
      drop(key, field)
      found[field], count = nil, count - 1
    end
  end
  return found, count
end

local function price_of(tokens)
  return math.floor(tokens * limits.price / 1000)
end

local function ramped(takes_up)
  local passed = math.max(0, now - state.cool_until)
  if passed >= limits.ramp then return takes_up end
  return math.floor(takes_up * 2 * limits.ramp / (limits.ramp + passed))
end

local function correct(lease, tokens, sent)
  change('requests', lease.request_part, 1, sent and 1 or 0)
  change('tokens', lease.token_part, lease.charged, charged('tokens', tokens))
  if lease.input_part then
    change('inputs', lease.input_part, lease.inputs, sent and charged('inputs', lease.inputs) or 0)
  end
  state.spent = state.spent + price_of(tokens) - price_of(lease.tokens)
end

local function ended(ticket)
  local packed = redis.call('HGET', name .. ':leases', ticket)
  if not packed then return nil end
  drop('leases', ticket)
  return cmsgpack.unpack(packed)
end

local function ahead_of(waiting, tenants, since)
  local order = {}
  for ticket, one in pairs(waiting) do
    if ticket ~= given.ticket then
      one.ticket = ticket
      order[#order + 1] = one
    end
  end
  table.sort(order, function(a, b)
    if a.since ~= b.since then return a.since < b.since end
    return a.ticket < b.ticket
  end)
  local count, cost, others, used = 0, 0, {}, tenants[given.tenant].used
  for _, one in ipairs(order) do
    local first = one.since < since
    if one.tenant ~= given.tenant then
      local theirs = others[one.tenant] or tenants[one.tenant].used
      first = theirs < used
      if first then others[one.tenant] = theirs + math.floor(math.max(1, one.cost) / one.weight) end
    end
    if first then count, cost = count + 1, cost + one.cost end
  end
  return count, cost
end

local function places()
  if now >= state.cool_until + limits.ramp then
    return limits.concurrent == 0 and math.huge or limits.concurrent
  end
  local few = 1 + state.successes
  return limits.concurrent == 0 and few or math.min(few, limits.concurrent)
end

local function first_start(tokens, inputs)
  local start = math.max(now, state.last_start)
  while true do
    local later = meter_start('requests', start, 1)
    later = meter_start('tokens', later, tokens)
    later = meter_start('inputs', later, inputs)
    if later == start then return start end
    start = later
  end
end

local function grant(start, cost, tenants)
  drop('waiting', given.ticket)
  state.last_start = start
  local arrival, tokens = start + limits.transit, charged('tokens', given.tokens)
  local inputs = charged('inputs', given.inputs)
  pack('leases', given.ticket, {
    ['until'] = start + given.hold, granted = now, start = start, tokens = given.tokens,
    charged = tokens, inputs = inputs,
    request_part = take('requests', start, arrival, 1, ramped(share('requests', 1))),
    token_part = take('tokens', start, arrival, tokens, ramped(share('tokens', tokens))),
    input_part = take('inputs', start, arrival, inputs, ramped(share('inputs', inputs))),
  })
  local tenant = tenants[given.tenant]
  tenant.used = tenant.used + math.floor(math.max(1, cost) / given.weight)
  pack('tenants', given.tenant, tenant)
  state.spent = state.spent + price_of(given.tokens)
end

local function ask()
  forget_parts('requests')
  forget_parts('tokens')
  forget_parts('inputs')
  local leases, in_flight = live('leases')
  local waiting = live('waiting')
  local tenants, count = live('tenants')
  local since = given.since > 0 and given.since or now
  if leases[given.ticket] then
    return {'granted', math.max(0, leases[given.ticket].start - now), since}
  end
  if given.whole > 0 and limits.money > 0 and state.spent + price_of(given.whole) > limits.money then
    return {'money', in_flight > 0 and SOON or 0, since}
  end
  local tokens, inputs = charged('tokens', given.tokens), charged('inputs', given.inputs)
  local cost = math.max(share('requests', 1), share('tokens', tokens), share('inputs', inputs))
  cost = ramped(cost)
  local tenant = tenants[given.tenant]
  if not tenant then
    local used = math.huge
    for _, other in pairs(tenants) do used = math.min(used, other.used) end
    tenant, count = {used = used == math.huge and 0 or used, ['until'] = 0}, count + 1
    tenants[given.tenant] = tenant
  end
  tenant['until'] = math.max(tenant['until'], now + IDLE)
  pack('tenants', given.tenant, tenant)

  local function later(why, wait)
    local keeps = now + wait + AHEAD
    tenant['until'] = math.max(tenant['until'], keeps + IDLE)
    pack('tenants', given.tenant, tenant)
    pack('waiting', given.ticket, {
      since = since, ['until'] = keeps, tenant = given.tenant, weight = given.weight, cost = cost,
    })
    return {why, wait, since}
  end

  local ahead, ahead_cost = ahead_of(waiting, tenants, since)
  if now < state.cool_until then return later('cooling', state.cool_until - now) end
  if in_flight + ahead >= places() then return later('rate', SOON) end
  local start = first_start(tokens, inputs)
  local horizon = count > 1 and AHEAD_SHARED or AHEAD
  local turn = start + ahead_cost - now
  if turn > horizon then
    return later('rate', math.min(turn - horizon / 2, (ahead + 1) * horizon / 2))
  end
  grant(start, cost, tenants)
  return {'granted', start - now, since}
end

local function settle()
  local lease = ended(given.ticket)
  if not lease then return {} end
  correct(lease, given.tokens < 0 and lease.tokens or given.tokens, true)
  if lease.granted >= state.cool_until then
    state.refusals, state.successes = 0, state.successes + 1
  end
  return {}
end

local function throttle()
  local lease = ended(given.ticket)
  if lease then correct(lease, lease.tokens, true) end
  if not lease or lease.granted >= state.cool_since then
    state.refusals, state.cool_since = state.refusals + 1, now
  end
  local pause = FIRST_PAUSE * 2 ^ math.min(state.refusals - 1, 16)
  pause = math.max(given.retry_after, math.min(pause, LONGEST_PAUSE))
  state.cool_until = math.max(state.cool_until, now + pause)
  state.successes = 0
  return {state.cool_until - now}
end

local function withdraw()
  drop('waiting', given.ticket)
  local lease = ended(given.ticket)
  if lease then correct(lease, 0, false) end
  return {}
end

local function lose()
  ended(given.ticket)
  return {}
end

local deeds = {ask = ask, settle = settle, throttle = throttle, withdraw = withdraw, lose = lose}
local reply = deeds[ARGV[1]]()
for field, value in pairs(state) do redis.call('HSET', name, field, text(value)) end
redis.call('EXPIRE', name, KEPT)
return reply
