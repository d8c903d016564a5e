-- read.lua reads from one queue of a tag, apart from removing what was kept long enough. It begins
-- with common.lua.
--
-- ARGV: the time, the queue's name, a letter, and what belongs to it. All answers begin with now
-- and its nanoseconds.

local q = open(1, ARGV[2])
local letter, x, y, z = ARGV[3], ARGV[4], ARGV[5], ARGV[6]

-- shown returns a job as read.go takes it: its id, list, score there, and records.
local function shown(member, list, score)
  return {sub(member, 7), list, string.format('%.0f', score),
    call('HGET', q.b, fieldOf(member)) or '', call('HGET', q.s, sub(member, 7)) or ''}
end

if letter == 'g' then -- Get: id, key
  local j = find(q, x, y)
  return {now, rem, j and shown(j.member, j.list, j.score) or false}
end

-- At how many bytes a list ends before its limit.
local listBytes = 8 * 1024 * 1024

-- behind reports whether the member a comes behind b: by priority and sequence, and if these are
-- equal, as members of different shards may be, by id. Lua's < follows the locale of the server.
local function behind(a, b)
  local rankA, highA, lowA = read('>I6I4I4', a)
  local rankB, highB, lowB = read('>I6I4I4', b)
  if rankA ~= rankB then return rankA > rankB end
  if highA ~= highB then return highA > highB end
  return lowA > lowB
end

-- position returns how many members of a list do not come behind a place. There may be many of one
-- score, and the job that was at the place may be gone.
local function position(list, score, member)
  local low = call('ZCOUNT', list, '-inf', '(' .. score)
  local high = call('ZCOUNT', list, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if behind(call('ZRANGE', list, middle, middle)[1], member) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

if letter == 'l' then -- List: state, limit, and the score and member of the cursor
  expire(q)
  local state, limit, jobs = tonumber(x), tonumber(y), {}
  -- put adds a job, and returns whether the answer is as large as it may be.
  local bytes = 0
  local function put(s, at)
    s[6] = at
    jobs[#jobs + 1] = s
    bytes = bytes + #s[4]
    return bytes >= listBytes
  end
  if state == 3 then -- Leased: l is in the order of the ends
    local members, all = call('ZRANGEBYSCORE', q.l, '-inf', '(inf'), {}
    for p, member in ipairs(members) do
      all[p] = {member = member,
        due = parseTries(call('HGET', q.s, sub(member, 7))).due}
    end
    table.sort(all, function(a, b)
      if a.due ~= b.due then return a.due < b.due end
      return behind(b.member, a.member)
    end)
    local score = tonumber(z)
    for _, a in ipairs(all) do
      if #jobs == limit then break end
      if z == '' or a.due > score or a.due == score and behind(a.member, ARGV[7]) then
        local s = shown(a.member, 'l', call('ZSCORE', q.l, a.member))
        if put(s, string.format('%.0f', a.due)) then return {now, rem, jobs, 1} end
      end
    end
    return {now, rem, jobs, 0}
  end
  local list = ({'z', 'z', nil, 'd', 'f'})[state]
  local from, to = 0, call('ZCOUNT', q[list], '-inf', '(inf')
  if state == 1 then from = call('ZCOUNT', q.z, '-inf', now) end
  if state == 2 then to = call('ZCOUNT', q.z, '-inf', now) end
  if z ~= '' then from = math.max(from, position(q[list], z, ARGV[7])) end
  to = math.min(to, from + limit)
  local found = to > from and call('ZRANGE', q[list], from, to - 1, 'WITHSCORES') or {}
  for p = 1, #found, 2 do
    local s = shown(found[p], list, tonumber(found[p + 1]))
    if put(s, s[3]) then return {now, rem, jobs, 1} end
  end
  return {now, rem, jobs, 0}
end

if letter == 'i' then -- a queue's line of Queues
  local kept = call('HMGET', tagKey, 'v' .. q.name, 'b' .. q.name, 'p' .. q.name, 'l' .. q.name)
  if not kept[1] then return {now, rem, false} end
  expire(q)
  q.paused = kept[3] and true
  local head = first(q.z)
  local all = call('ZCARD', q.z) - 1
  local ready = call('ZCOUNT', q.z, '-inf', now)
  return {now, rem, kept[3] and 1 or 0, kept[4] or '', all - ready, ready,
    call('ZCARD', q.l) - 1, call('ZCARD', q.d) - 1, call('ZCARD', q.f) - 1, kept[2] or '0',
    nextOf(q), head < math.huge and head or -1}
end

-- Due: the milliseconds and nanoseconds of each end
local counts, before = {now, rem}, 0
for p = 4, #ARGV, 2 do
  local n = call('ZCOUNT', q.z, '-inf', now + ARGV[p] + math.floor((rem + ARGV[p + 1]) / 1e6))
  counts[#counts + 1] = math.max(n - before, 0)
  before = math.max(before, n)
end
return counts
