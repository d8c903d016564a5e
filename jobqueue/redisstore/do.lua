-- do.lua carries out the operations of a group that concern one tag, all or, if another server or
-- memory is to blame, none. It begins with common.lua.
--
-- A call has a number, and a lane that no other call uses meanwhile. The lane keeps the number of
-- its last call and what that answered. So a call is carried out once however often it is sent,
-- and one that arrives after it was given up is refused.
--
-- ARGV: the time, the lane, the number, how many queues, their names, and the operations, each a
-- letter and what belongs to it. Nothing is written before the first operation is known to be
-- valid, and calls have a thousand jobs at most, as a script that fails is not rolled back.
--
-- The answer: now, its nanoseconds, how many operations were carried out, queues that have to be
-- declared for the next one, {queue, due, ...} for those that have something to claim earlier than
-- before, and what operations have to say other than "done".

local lane, number, queues, byName, at = ARGV[2], tonumber(ARGV[3]), {}, {}, 5

local names = {'v', 'q', 'J', 'B', 'L', lane}
for i = 1, ARGV[4] do
  local name = ARGV[at]
  at = at + 1
  queues[i] = open(i, name)
  byName[name] = queues[i]
  for _, letter in ipairs({'v', 'b', 'p', 'l', 'a'}) do names[#names + 1] = letter .. name end
end
local kept = {}
for p = 1, #names, 1000 do -- Lua passes no more than some thousand arguments
  for _, value in ipairs(call('HMGET', tagKey, spread(names, p, math.min(p + 999, #names)))) do
    kept[#kept + 1] = value
  end
end
local session = sub(lane, 2, 17) -- of the process

-- How late a process may be to what it waits for, before another takes its place.
local grace = 25

local function limits(packed)
  if not packed then return end
  local jobs, bytes, drop, shards = read('>I6I6BI2', packed)
  if jobs == 0 and bytes == 0 then return end
  return {jobs = jobs > 0 and math.ceil(jobs / shards) or math.huge,
    bytes = bytes > 0 and math.ceil(bytes / shards) or math.huge, drop = drop == 1}
end

local sequence = tonumber(kept[2] or 0)
local space = {jobs = tonumber(kept[3] or 0), bytes = tonumber(kept[4] or 0),
  limits = limits(kept[5]), queues = queues}
local changed = false -- whether the call has written anything

for i, q in ipairs(queues) do
  local p = 5 * i + 2
  q.index, q.made, q.had = i, kept[p], tonumber(kept[p + 1] or 0)
  q.paused, q.limits, q.armed = kept[p + 2] and true, limits(kept[p + 3]), kept[p + 4]
  if q.armed == '' then q.armed = false end
  q.queues = {q}
  if q.limits and q.made then
    q.held = call('ZCARD', q.z) + call('ZCARD', q.l) - 2
  end
  q.adds = {members = {}, records = {}, keys = {}, byKey = {}, fields = {}}
end

local answers = {}
local function say(i, ...) answers[#answers + 1] = {i, ...} end

-- A lane's record: number, time, and the answers, in which a claim has ids without their records.

local function readLane(text)
  if not text then return -1 end
  local n, _, from = read('>I6I6', text)
  return n, from
end

local last, from = readLane(kept[6])
if last > number then return redis.error_reply('STALE the call was given up') end
if last == number then
  local was = cmsgpack.unpack(sub(kept[6], from))
  for _, a in ipairs(was[6]) do
    if a[2] == 'c' then
      local q, jobs = byName[a[7]], {}
      for p = 8, #a do
        local s = call('HGET', q.s, a[p])
        local rec = s and call('HGET', q.b, fieldOf(parseTries(s).ps .. a[p]))
        if s and rec and sub(s, 1, 6) == a[6] then
          jobs[#jobs + 1] = a[p] .. s
          jobs[#jobs + 1] = rec
        end
      end
      for p = #a, 8, -1 do a[p] = nil end
      a[7] = 1
      for p, v in ipairs(jobs) do a[7 + p] = v end
    end
  end
  -- A WAIT behind this call is about what its connection writes. Memory is freed first, so that
  -- nothing is refused for lack of it.
  call('HDEL', tagKey, 'v')
  call('HSET', tagKey, 'v', 1)
  return was
end

-- create makes the keys of a queue. Each has a member that stays: while a slot migrates, a Cluster
-- refuses calls that declare a key which is not there.
local function create(q)
  if q.made then return end
  for _, list in ipairs({q.z, q.l, q.d, q.f, q.x}) do call('ZADD', list, 'inf', '') end
  for _, hash in ipairs({q.b, q.s, q.k}) do call('HSET', hash, '', '') end
  call('HSET', tagKey, 'v', 1, 'v' .. q.name, 1)
  q.made, q.held, changed = true, 0, true
end

-- touch says that a queue is about to have something to claim at a time.
local function touch(q, due)
  q.head = q.head or first(q.z)
  if due < q.head then
    q.head, q.low = due, math.min(q.low or math.huge, due)
  end
end

-- flush writes the jobs that were added.
local function flush(q)
  local a = q.adds
  if #a.members == 0 then return end
  call('HSET', q.b, spread(a.records))
  call('ZADD', q.z, spread(a.members))
  if #a.keys > 0 then
    call('HSET', q.k, spread(a.keys))
    q.longKeys = true
  end
  q.adds = {members = {}, records = {}, keys = {}, byKey = {}, fields = {}}
end

-- before reports whether a is claimed before b. Lua's < follows the locale of the server.
local function before(a, b)
  if a.due ~= b.due then return a.due < b.due end
  return read('>I6', a.member) < read('>I6', b.member)
end

-- The queues that a call must declare too. If it is set, what is left of the call is sent again.
local missing

-- How many jobs an operation deals with before other clients have their turn.
local part = 1000

-- makeRoom returns whether there is room for so many bytes, and buries jobs to make it, as the
-- limits say. The job old is about to be replaced and counts no longer. A limit may have been set
-- far below what there is.
local function makeRoom(q, old, size)
  local victims, taken, more = {}, {}, false
  for _, scope in ipairs({q, space}) do
    local l = scope.limits
    if l then
      local jobs, bytes = scope.jobs, scope.bytes
      if scope == q then
        jobs, bytes = q.held + q.jobs, q.had + q.bytes
      else
        for _, other in ipairs(queues) do
          jobs, bytes = jobs + other.jobs, bytes + other.bytes
        end
      end
      if old then jobs, bytes = jobs - 1, bytes - old.size end
      for _, v in ipairs(victims) do jobs, bytes = jobs - 1, bytes - v.size end
      if (jobs >= l.jobs or bytes + size > l.bytes) and not l.drop then return false end
      local rank = {}
      while not more and (jobs >= l.jobs or bytes + size > l.bytes) do
        if scope == space and not missing then
          local declared = {}
          for _, other in ipairs(queues) do declared['v' .. other.name] = true end
          local lacks = {}
          for _, field in ipairs(call('HKEYS', tagKey)) do
            if sub(field, 1, 1) == 'v' and field ~= 'v' and not declared[field] then
              lacks[#lacks + 1] = sub(field, 2)
            end
          end
          if #lacks > 0 then
            missing = lacks
            return false
          end
        end
        local victim
        for i, other in ipairs(scope.queues) do
          if other.made then
            flush(other)
            while true do
              local head = call('ZRANGE', other.z, rank[i] or 0, rank[i] or 0, 'WITHSCORES')
              if #head == 0 or head[1] == '' then break end
              local v = {q = other, i = i, member = head[1], due = tonumber(head[2])}
              if not (taken[v.member] or old and old.member == v.member) then
                if not victim or before(v, victim) then victim = v end
                break
              end
              rank[i] = (rank[i] or 0) + 1
            end
          end
        end
        if not victim then return false end
        taken[victim.member] = true
        local j = load(victim.q, sub(victim.member, 7))
        j.q = victim.q
        victims[#victims + 1] = j
        jobs, bytes = jobs - 1, bytes - j.size
        more = #victims == part
      end
    end
  end
  for _, j in ipairs(victims) do
    j.err = 'dropped to make room'
    move(j.q, j, 'd', now)
    note(j.q, j)
  end
  if more then missing, changed = {}, true end
  return not more
end

-- due returns the time that a When says.
local function due(kind, ms, ns)
  if kind == 0 then return now end
  if kind == 1 then return after(ms, ns) end
  return ms
end

local packedNow = pack('>I6', now)

local function add(q, i, meta, key, tail)
  local id, hash, kind, ms, ns, on, retry, chosen, priority, size = read('>c8c4BI6I4BBBBI4', meta)
  local a = q.adds
  if chosen == 1 then
    local there = a.fields[id]
    if not there then
      flush(q) -- the id may be one of a job that is found by its key
      there = load(q, id)
    end
    if retry == 1 and (there or call('ZSCORE', q.x, 'r' .. id)) then return end
    if there then return say(i, 'K') end
  end
  local old, taken = a.byKey[key], a.fields[hash] -- whether the hash is the field of a record
  if not old then
    local there
    old, there = idOfKey(q, hash, key)
    taken = taken or there
  end
  if old then
    if on == 0 then return say(i, 'k', old) end
    if on == 2 then return say(i, 'K') end
    flush(q)
    old = load(q, old)
  end
  if q.limits or space.limits then
    create(q)
    if not makeRoom(q, old, size) then
      if not missing then say(i, 'F') end
      return
    end
  end
  create(q)
  a = q.adds -- makeRoom may have written them
  if old then
    erase(q, old)
    taken = call('HEXISTS', q.b, hash) == 1
  end
  sequence = sequence + 1
  local short = key ~= '' and chosen == 0 and not taken
  local when, ps = due(kind, ms, ns), pack('>BI5', priority, 2 * sequence + (short and 1 or 0))
  local member, field, n = ps .. id, short and hash or id, #a.members
  touch(q, when)
  a.members[n + 1] = when
  a.members[n + 2] = member
  a.records[n + 1] = field
  a.records[n + 2] = ps .. sub(id, 5) .. packedNow .. tail
  a.fields[field] = true
  if key ~= '' then
    a.byKey[key] = id
    if not short then
      a.keys[#a.keys + 1] = key
      a.keys[#a.keys + 1] = member
    end
  end
  q.jobs, q.bytes, changed = q.jobs + 1, q.bytes + size, true
end

-- giveBack puts leased jobs back into z, at their old due times.
local function giveBack(q, ids, records)
  local gone, z, s = {}, {}, {}
  for p, id in ipairs(ids) do
    local t = parseTries(records[p])
    gone[p] = t.ps .. id
    z[2 * p - 1], z[2 * p] = t.due, gone[p]
    s[2 * p - 1], s[2 * p] = id, noToken .. sub(records[p], 9)
  end
  call('ZREM', q.l, spread(gone))
  call('ZADD', q.z, spread(z))
  call('HSET', q.s, spread(s))
  q.head, changed = nil, true
end

local function endLeases(q)
  local members = call('ZRANGEBYSCORE', q.l, '-inf', now, 'LIMIT', 0, 1000)
  if #members == 0 then return end
  local ids = {}
  for p, member in ipairs(members) do ids[p] = sub(member, 7) end
  giveBack(q, ids, call('HMGET', q.s, spread(ids)))
end

-- How many jobs a claim reads first, and at most at a time, and at how many bytes it ends.
local firstBatch, batch, claimBytes = 20, 200, 8 * 1024 * 1024

-- take has a claim lease jobs that are due after a time, until it has so many.
local function take(q, c, from, most)
  local last = false -- a job with its last attempt was met, and workers may all be busy
  while not last and c.taken < most and c.buried < 1000 and c.bytes < claimBytes do
    local found = call('ZRANGEBYSCORE', q.z, from, now, 'WITHSCORES', 'LIMIT', 0,
      math.min(most - c.taken, c.batch))
    if #found == 0 then return end
    q.head, changed = nil, true
    local ids, where = {}, {}
    for p = 1, #found, 2 do
      ids[#ids + 1], where[#where + 1] = sub(found[p], 7), fieldOf(found[p])
    end
    local records, tries = call('HMGET', q.b, spread(where)), call('HMGET', q.s, spread(ids))
    local gone, l, s = {}, {}, {}
    for p, id in ipairs(ids) do
      local member, rec = found[2 * p - 1], records[p]
      if not rec then -- the record was evicted or removed by hand
        call('ZREM', q.z, member)
      else
        local j = parse(rec)
        j.id, j.member = id, member
        j.list, j.due, j.token, j.attempts, j.err = 'z', tonumber(found[2 * p]), noToken, 0, ''
        if tries[p] then
          local t = parseTries(tries[p])
          j.attempts, j.err = t.attempts, t.err
        end
        local limit = j.max > 0 and j.max or c.attempts
        if limit > 0 and j.attempts >= limit and band(j.flags, hasRepeat) == 0 then
          local why = 'the lease of the last attempt ended'
          j.err = j.err == '' and why or why .. '; before: ' .. j.err
          move(q, j, 'd', now)
          note(q, j)
          c.buried = c.buried + 1
        elseif limit > 0 and j.attempts + 1 >= limit and c.taken >= c.free then
          last = true
          break
        else
          c.taken = c.taken + 1
          local t = pack('>c6I2I6I4c6BI4I2', c.base, c.taken, j.due, j.attempts + 1,
            sub(member, 1, 6), j.flags, j.size, #keyFor(j)) .. keyFor(j) .. j.err
          gone[#gone + 1] = member
          l[#l + 1] = c.ends
          l[#l + 1] = member
          s[#s + 1] = id
          s[#s + 1] = t
          c.answer[#c.answer + 1] = id .. t
          c.answer[#c.answer + 1] = rec
          c.bytes = c.bytes + #rec
        end
      end
    end
    if #gone > 0 then
      call('ZREM', q.z, spread(gone)) -- frees memory, so that what follows is allowed
      call('ZADD', q.l, spread(l))
      call('HSET', q.s, spread(s))
      c.batch = math.ceil(math.min(batch, claimBytes * c.taken / c.bytes))
    end
  end
end

-- arm decides whether the process that claims is the one that waits for the next job to the
-- millisecond. That is the last one which had room for more jobs than it found, unless it did not
-- come when it should have. The others come a little later, and find the job taken.
local function arm(q, full, at)
  local who, due = session, -1
  if q.armed then who, due = sub(q.armed, 1, 16), read('>I6', q.armed, 17) end
  if who ~= session and due + grace >= now then return 0 end
  q.armed = not full and session .. pack('>I6', at >= 0 and at or 2 ^ 48 - 1)
  q.rearmed = true
  return 1
end

local function claim(q, i, meta)
  local most, fresh, free, ms, ns, attempts, base = read('>I4I4I4I6I4I4c6', meta)
  local answer = {i, 'c', -1, 0, 0, base, 1}
  answers[#answers + 1], answer.queue = answer, q.name
  if not q.made then return end
  flush(q)
  endLeases(q)
  expire(q)
  local c = {answer = answer, base = base, free = free, attempts = attempts,
    ends = after(ms, ns), taken = 0, buried = 0, bytes = 0, batch = firstBatch}
  if not q.paused then
    take(q, c, string.format('(%.0f', now - 10000), math.min(fresh, most)) -- store.FreshTime
    take(q, c, '-inf', most)
  end
  answer[3], answer[4], answer[5] = nextOf(q), c.ends, c.buried
  if most > 0 then answer[7] = arm(q, c.taken >= most, answer[3]) end
end

-- acks ends the leases of jobs whose work is done, each 8 bytes of id and 8 of token.
local function acks(q, i, list)
  local ids, tokens, seen = {}, {}, {}
  for p = 1, #list, 16 do
    ids[#ids + 1] = sub(list, p, p + 7)
    tokens[#tokens + 1] = sub(list, p + 8, p + 15)
  end
  flush(q)
  local records = call('HMGET', q.s, spread(ids))
  local gone, done, fields, keys, chosen = {}, {}, {}, {}, {}
  for p, id in ipairs(ids) do
    local t = records[p] and parseTries(records[p])
    if not t or seen[id] or tokens[p] == noToken or t.token ~= tokens[p] then
      say(i + p - 1, 'L')
    elseif band(t.flags, hasRetain) ~= 0 then
      local j = load(q, id)
      move(q, j, 'f', now)
      j.token = noToken
      note(q, j)
      call('ZADD', q.x, now + j.retain, 'd' .. j.member)
      changed = true
    else
      gone[#gone + 1] = t.ps .. id
      done[#done + 1], fields[#fields + 1] = id, fieldOf(gone[#gone])
      if t.key ~= '' then keys[#keys + 1] = t.key end
      if band(t.flags, wasChosen) ~= 0 then chosen[#chosen + 1] = id end
      q.jobs, q.bytes = q.jobs - 1, q.bytes - t.size
    end
    seen[id] = true
  end
  if #gone == 0 then return end
  changed = true
  call('ZREM', q.l, spread(gone))
  call('HDEL', q.b, spread(fields))
  call('HDEL', q.s, spread(done))
  if #keys > 0 then call('HDEL', q.k, spread(keys)) end
  for _, id in ipairs(chosen) do call('ZADD', q.x, now + remember, 'r' .. id) end
end

-- leased returns the job whose lease a token is.
local function leased(q, i, id, token)
  flush(q)
  local j = token ~= noToken and load(q, id)
  if j and j.list == 'l' and j.token == token then
    q.head, changed = nil, true
    return j
  end
  say(i, 'L')
end

-- withRepeat returns the record of a job with another Repeat, or with none.
local function withRepeat(j, text)
  local flags = j.flags - band(j.flags, hasRepeat)
  if text ~= '' then
    flags = flags + hasRepeat
    text = pack('>I4', #text) .. text
  end
  j.flags = flags
  return sub(j.rec, 1, 16) .. pack('>B', flags) .. sub(j.rec, 18, j.head) .. text ..
    sub(j.rec, j.at)
end

local function finish(q, i, meta, err, again)
  local id, token, verdict, kind, ms, ns, failed, spare = read('>c8c8BBI6I4Bc8', meta)
  local j = leased(q, i, id, token)
  if not j then return end
  j.token = noToken
  call('ZREM', q.l, j.member) -- frees memory, so that what follows is allowed
  if verdict == 3 then -- Bury
    j.err = err
    move(q, j, 'd', now)
    note(q, j)
    return
  end
  local when = due(kind, ms, ns)
  touch(q, when)
  if verdict == 1 then -- Retry
    j.err = err
  elseif verdict == 2 then -- Snooze
    j.attempts = j.attempts - 1
  else -- Again
    if failed == 1 then
      sequence = sequence + 1
      local copy = {id = spare, member = sub(j.member, 1, 1) .. pack('>I5', 2 * sequence) .. spare,
        list = 'd', token = noToken, due = j.due, attempts = j.attempts, err = err, key = '',
        flags = j.flags, size = j.size - #j.key}
      local rec = withRepeat(j, '')
      copy.flags = j.flags - band(j.flags, wasChosen)
      call('HSET', q.b, spare, sub(copy.member, 1, 6) .. sub(spare, 5) .. sub(rec, 11, 16) ..
        pack('>BI2', copy.flags, 0) .. sub(rec, 20, j.head) .. sub(j.rec, j.at + j.klen))
      call('ZADD', q.d, now, copy.member)
      note(q, copy)
    end
    j.attempts, j.err = 0, err
    call('HSET', q.b, fieldOf(j.member), withRepeat(j, again))
  end
  j.due = when
  move(q, j, 'z', when)
  note(q, j)
end

local function extend(q, i, meta)
  local id, token, ms, ns = read('>c8c8I6I4', meta)
  local j = leased(q, i, id, token)
  if not j then return end
  local ends = after(ms, ns)
  touch(q, ends)
  move(q, j, 'l', ends)
end

local function cancel(q, i, id, key)
  flush(q)
  local j = find(q, id, key)
  if not j or j.list == 'f' then return say(i, 'N') end
  say(i, 'd', j.id, j.list == 'l' and 1 or 0)
  erase(q, j)
  q.head, changed = nil, true
end

-- pending returns a job that is not leased, dead or done.
local function pending(q, i, id, key)
  flush(q)
  local j = find(q, id, key)
  if j and j.list == 'z' then
    changed = true
    return j
  end
  say(i, j and j.list == 'l' and 'B' or 'N')
end

local function reschedule(q, i, id, key, meta)
  local j = pending(q, i, id, key)
  if not j then return end
  local when = due(read('>BI6I4', meta))
  touch(q, when)
  move(q, j, 'z', when)
  q.head = nil
end

local function update(q, i, id, key, body)
  local j = pending(q, i, id, key)
  if not j then return end
  local grown = #body - (j.size - j.klen)
  local all = space.bytes
  for _, other in ipairs(queues) do all = all + other.bytes end
  if grown > 0 and (q.limits and q.had + q.bytes + grown > q.limits.bytes or
    space.limits and all + grown > space.limits.bytes) then
    return say(i, 'F')
  end
  call('HSET', q.b, fieldOf(j.member), sub(j.rec, 1, j.at + j.klen - 1) .. body)
  if j.attempts > 0 or j.err ~= '' then
    j.size = j.size + grown
    note(q, j)
  end
  q.bytes = q.bytes + grown
end

local function revive(q, j)
  touch(q, now)
  j.attempts, j.due = 0, now
  move(q, j, 'z', now)
  note(q, j)
  changed = true
end

local function requeue(q, i, id, key, most, from)
  flush(q)
  if id ~= '' or key ~= '' then
    local j = find(q, id, key)
    if not j or j.list ~= 'd' then return say(i, 'N') end
    if idOfKey(q, hashOf(j.key), j.key) then return say(i, 'K') end
    revive(q, j)
    return say(i, 'n', 1)
  end
  most = math.min(tonumber(most), part)
  local n, begin = 0, tonumber(from)
  from = begin
  while n < most do
    if from - begin >= part then -- of jobs that stay dead
      missing = {}
      return say(i, 'n', n, from)
    end
    local members = call('ZRANGE', q.d, from, from + 99)
    if #members == 0 then break end
    for _, member in ipairs(members) do
      local j = member ~= '' and n < most and load(q, sub(member, 7))
      if j and not idOfKey(q, hashOf(j.key), j.key) then
        revive(q, j)
        n = n + 1
      else
        from = from + 1
      end
    end
  end
  say(i, 'n', n)
end

local function purge(q, i, state, most)
  flush(q)
  expire(q)
  most = math.min(tonumber(most), 1000)
  local from, to, list = '-inf', '(inf', ({'z', 'z', nil, 'd', 'f'})[tonumber(state)]
  if state == '1' then from = '(' .. string.format('%.0f', now) end
  if state == '2' then to = now end
  local members = list and call('ZRANGEBYSCORE', q[list], from, to, 'LIMIT', 0, most) or {}
  for _, member in ipairs(members) do
    local j = load(q, sub(member, 7))
    if j then erase(q, j) else call('ZREM', q[list], member) end
    q.head, changed = nil, true
  end
  say(i, 'n', #members)
end

local function configure(q, pause, limit)
  flush(q)
  create(q)
  changed = true
  if pause ~= '' then
    q.paused = pause == '1'
    if q.paused then
      call('HSET', tagKey, 'p' .. q.name, 1)
    else
      call('HDEL', tagKey, 'p' .. q.name)
    end
    if not q.paused and nextOf(q) >= 0 then q.low = nextOf(q) end
  end
  if limit ~= '' then
    call('HSET', tagKey, 'l' .. q.name, limit)
    q.limits = limits(limit)
    q.held = call('ZCARD', q.z) + call('ZCARD', q.l) - 2 - q.jobs
  end
end

local function configureSpace(limit)
  call('HSET', tagKey, 'v', 1, 'L', limit)
  space.limits, changed = limits(limit), true
end

-- undo gives back the jobs that a lost call has claimed, without a loss of attempts, and has that
-- call refused if it still comes.
local function undo(field, lost)
  local text = call('HGET', tagKey, field)
  local n, rest = readLane(text)
  if n > lost then return end
  if n == lost then
    for _, a in ipairs(cmsgpack.unpack(sub(text, rest))[6]) do
      local q = a[2] == 'c' and byName[a[7]]
      for p = 8, q and #a or 0 do
        local j = load(q, a[p])
        if j and j.list == 'l' and sub(j.token, 1, 6) == a[6] then
          j.token, j.attempts = noToken, j.attempts - 1
          move(q, j, 'z', j.due)
          note(q, j)
          q.head = nil
        end
      end
    end
  end
  call('HSET', tagKey, field, pack('>I6I6', lost, now) .. cmsgpack.pack({now, rem, 0, {}, {}, {}}))
end

-- How many elements of ARGV belong to an operation, and how many operations it stands for.
local forms = {a = 3, c = 1, k = 1, f = 3, e = 1, d = 2, r = 3, u = 3, w = 4, p = 2, s = 2, S = 1}
local operations = {a = add, c = claim, k = acks, f = finish, e = extend, d = cancel,
  r = reschedule, u = update, w = requeue, p = purge}

local q, done = nil, 0
while at <= #ARGV and not missing do
  local letter = ARGV[at]
  if letter == 'q' then
    q = queues[tonumber(ARGV[at + 1])]
    at = at + 2
  elseif letter == 'g' then
    undo(ARGV[at + 1], tonumber(ARGV[at + 2]))
    at = at + 3
  else
    local x, y, z = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    if letter == 's' then configure(q, x, y)
    elseif letter == 'S' then configureSpace(x)
    else operations[letter](q, done + 1, x, y, z, ARGV[at + 4])
    end
    if not missing then done = done + (letter == 'k' and #x / 16 or 1) end
    at = at + 1 + forms[letter]
  end
end

local woken, jobs, bytes = {}, space.jobs, space.bytes
for i, q in ipairs(queues) do
  flush(q)
  jobs, bytes = jobs + q.jobs, bytes + q.bytes
  if q.low then
    local armed = q.armed and sub(q.armed, 1, 16) or ''
    woken[#woken + 1] = i
    woken[#woken + 1] = q.low
    woken[#woken + 1] = armed
    call('PUBLISH', sub(q.z, 1, -2) .. 'w', session .. ' ' .. armed .. ' ' ..
      string.format('%.0f', math.max((q.low - now) * 1e6 - rem, 0)))
  end
end

local answer = {now, rem, done, missing or {}, woken, answers}
local short = {}
for p, a in ipairs(answers) do
  short[p] = a
  if a[2] == 'c' then
    short[p] = {a[1], a[2], a[3], a[4], a[5], a[6], a.queue}
    for o = 8, #a, 2 do short[p][#short[p] + 1] = sub(a[o], 1, 8) end
  end
end

-- A call that changed nothing leaves its number too: it might change something if it came twice.
if not changed then call('HDEL', tagKey, lane) end -- frees memory, so that what follows is allowed
local fields = {'q', sequence, 'J', jobs, 'B', bytes, lane,
  pack('>I6I6', number, now) .. cmsgpack.pack({now, rem, done, missing or {}, woken, short})}
if not kept[1] then fields[#fields + 1], fields[#fields + 2] = 'v', 1 end
for _, q in ipairs(queues) do
  if q.bytes ~= 0 then
    fields[#fields + 1], fields[#fields + 2] = 'b' .. q.name, q.had + q.bytes
  end
  if q.rearmed then
    fields[#fields + 1], fields[#fields + 2] = 'a' .. q.name, q.armed or ''
  end
end
call('HSET', tagKey, spread(fields))

-- A new lane removes those of processes that ended long ago.
if not kept[6] and call('HLEN', tagKey) > 300 then
  local all = call('HGETALL', tagKey)
  for p = 1, #all, 2 do
    if sub(all[p], 1, 1) == 'c' and read('>I6', all[p + 1], 7) < now - 600000 then
      call('HDEL', tagKey, all[p])
    end
  end
end
return answer
