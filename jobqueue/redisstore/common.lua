-- What do.lua and read.lua share: the time, the keys, the records. layout.go describes them.
--
-- ARGV[1] is empty, or in tests the time: milliseconds and the nanoseconds beyond them.

local call, band, sub = redis.call, bit.band, string.sub
local pack, read, spread = struct.pack, struct.unpack, unpack

local now, rem
if ARGV[1] ~= '' then
  now, rem = read('>I6I4', ARGV[1])
else
  local t = call('TIME')
  now, rem = t[1] * 1000 + math.floor(t[2] / 1000), t[2] % 1000 * 1000
end

local tagKey = KEYS[1]
local noToken = string.rep('\0', 8)
local hasMax, hasRetain, hasRepeat, wasChosen = 1, 2, 4, 8

-- For how long a chosen id is remembered once its job is gone.
local remember = 24 * 3600 * 1000

-- after returns the millisecond in which a time that is so far from now has come.
local function after(ms, ns)
  return now + ms + math.ceil((rem + ns) / 1e6)
end

-- open returns the i-th queue of the call.
local function open(i, name)
  local at = 8 * i - 6
  return {name = name, jobs = 0, bytes = 0, z = KEYS[at], l = KEYS[at + 1], b = KEYS[at + 2],
    s = KEYS[at + 3], k = KEYS[at + 4], d = KEYS[at + 5], f = KEYS[at + 6], x = KEYS[at + 7]}
end

-- isShort reports whether the job of a member, or of the beginning of one, is found by its key
-- through the hash of the key: the lowest bit of the sequence says so.
local function isShort(member)
  return string.byte(member, 6) % 2 == 1
end

-- fieldOf returns under what b has the record of a member.
local function fieldOf(member)
  return isShort(member) and sub(member, 7, 10) or sub(member, 7)
end

-- parse reads a record of b.
local function parse(rec)
  local ps, low, added, flags, klen, at = read('>c6c4I6BI2', rec)
  local j = {ps = ps, low = low, flags = flags, rec = rec, klen = klen, max = 0, retain = 0}
  if band(flags, hasMax) ~= 0 then j.max, at = read('>I4', rec, at) end
  if band(flags, hasRetain) ~= 0 then j.retain, at = read('>I6', rec, at) end
  j.head = at - 1
  if band(flags, hasRepeat) ~= 0 then
    local n
    n, at = read('>I4', rec, at)
    at = at + n
  end
  j.at = at
  j.key = sub(rec, at, at + klen - 1)
  j.size = #rec - at + 1
  return j
end

-- parseTries reads a record of s.
local function parseTries(s)
  local token, due, attempts, ps, flags, size, klen, at = read('>c8I6I4c6BI4I2', s)
  return {token = token, due = due, attempts = attempts, ps = ps, flags = flags, size = size,
    key = sub(s, at, at + klen - 1), err = sub(s, at + klen)}
end

-- keyFor returns the key that s keeps of a job: what an acknowledgement has to remove from k.
local function keyFor(j)
  return isShort(j.member) and '' or j.key
end

-- note writes the record of s of a job, or removes it if it would say nothing.
local function note(q, j)
  if j.attempts == 0 and j.err == '' and j.list == 'z' then
    call('HDEL', q.s, j.id)
    return
  end
  call('HSET', q.s, j.id, pack('>c8I6I4c6BI4I2', j.token, j.due, j.attempts, sub(j.member, 1, 6),
    j.flags, j.size, #keyFor(j)) .. keyFor(j) .. j.err)
end

local live = {z = true, l = true}

-- move takes a job from its list to another, or to none. It keeps the key and the counts.
local function move(q, j, to, score)
  call('ZREM', q[j.list], j.member) -- frees memory, so that what follows is allowed
  if j.list == 'f' then call('ZREM', q.x, 'd' .. j.member) end
  if live[j.list] and not live[to] then
    if isShort(j.member) then -- the key may have another job from now on
      call('HDEL', q.b, fieldOf(j.member))
      j.member = sub(j.member, 1, 5) .. string.char(string.byte(j.member, 6) - 1) .. j.id
      if to then
        j.rec = sub(j.member, 1, 6) .. sub(j.rec, 7)
        call('HSET', q.b, j.id, j.rec)
      end
    elseif j.key ~= '' then
      call('HDEL', q.k, j.key)
    end
    q.jobs, q.bytes = q.jobs - 1, q.bytes - j.size
  elseif live[to] and not live[j.list] then
    if j.key ~= '' then
      call('HSET', q.k, j.key, j.member)
      q.longKeys = true
    end
    q.jobs, q.bytes = q.jobs + 1, q.bytes + j.size
  end
  if to then call('ZADD', q[to], score, j.member) end
  j.list = to
end

-- forget removes the records of jobs that are in no list any more.
local function forget(q, id, flags)
  call('HDEL', q.b, id)
  call('HDEL', q.s, id)
  if band(flags, wasChosen) ~= 0 then call('ZADD', q.x, now + remember, 'r' .. id) end
end

local function erase(q, j)
  move(q, j)
  forget(q, j.id, j.flags)
end

-- complete returns a job with what is kept of it elsewhere than in its record, or nil.
local function complete(q, j)
  local s = call('HGET', q.s, j.id)
  if s then
    local t = parseTries(s)
    j.token, j.due, j.attempts, j.err = t.token, t.due, t.attempts, t.err
  else
    j.token, j.due, j.attempts, j.err = noToken, 0, 0, ''
  end
  for _, list in ipairs({'z', 'l', 'd', 'f'}) do
    j.score = tonumber(call('ZSCORE', q[list], j.member) or nil)
    if j.score then
      j.list = list
      break
    end
  end
  if not j.list then return end
  if j.list == 'z' then j.due = j.score end
  if j.list == 'f' and j.score + j.retain <= now then
    erase(q, j)
    return
  end
  return j
end

-- load returns the job of an id, or nil.
local function load(q, id)
  if #id ~= 8 then return end
  local high, low = sub(id, 1, 4), sub(id, 5)
  local rec = call('HGET', q.b, id)
  if not rec then
    rec = call('HGET', q.b, high)
    if not rec or sub(rec, 7, 10) ~= low then return end
  end
  local j = parse(rec)
  j.id, j.member = id, j.ps .. id
  return complete(q, j)
end

-- hasLongKeys reports whether jobs of a queue are found by their keys through k.
local function hasLongKeys(q)
  if q.longKeys == nil then q.longKeys = call('HLEN', q.k) > 1 end
  return q.longKeys
end

-- idOfKey returns the id of the live job with a key, given the hash of the key, or nil, and whether
-- the hash is the field of a record.
local function idOfKey(q, hash, key)
  if key == '' then return end
  local taken = call('HEXISTS', q.b, hash) == 1
  if taken then
    local j = parse(call('HGET', q.b, hash))
    if j.key == key then return hash .. j.low, taken end
  end
  local member = hasLongKeys(q) and call('HGET', q.k, key)
  return member and sub(member, 7) or nil, taken
end

-- hashOf returns the hash of a key. Go passes it with what has a key.
local function hashOf(key)
  local hex = redis.sha1hex(key)
  return (string.gsub(sub(hex, 1, 8), '..', function(x) return string.char(tonumber(x, 16)) end))
end

-- find returns the job that an id, or the hash of a key and the key, name.
local function find(q, id, key)
  if #id ~= 8 then id = idOfKey(q, id, key) or '' end
  return load(q, id)
end

-- expire removes what was kept long enough.
local function expire(q)
  for _, x in ipairs(call('ZRANGEBYSCORE', q.x, '-inf', now, 'LIMIT', 0, 100)) do
    call('ZREM', q.x, x)
    if sub(x, 1, 1) == 'd' then
      local member = sub(x, 2)
      local rec = call('HGET', q.b, sub(member, 7))
      call('ZREM', q.f, member)
      if rec then forget(q, sub(member, 7), parse(rec).flags) end
    end
  end
end

-- first returns the score of the first member of a list, which may be infinite.
local function first(list)
  return tonumber(call('ZRANGE', list, 0, 0, 'WITHSCORES')[2] or math.huge)
end

-- nextOf returns when a queue may have something to claim, or -1.
local function nextOf(q)
  local at = q.paused and math.huge or math.min(first(q.z), first(q.l))
  return at < math.huge and at or -1
end
