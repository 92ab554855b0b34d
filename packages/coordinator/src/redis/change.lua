-- Changes one session, or makes it, under its guards: the one place where a session's state moves.
--
-- KEYS   1 record (hash; every value is JSON text)   2 turns (hash)   3 turn order (list)   4 queue (list)
--        5 checkpoints (hash)   6 checkpoint order (list)   7 begins (hash)   8 idempotency keys (hash)
--        9 events (stream)   10 due work (sorted set)   11 names of the owner (hash)   12 all sessions (set)
--        13 sessions of the environment (set)
-- ARGV   1 guard, JSON: create?, name?, from?[], generation?, nonce?, seq?, rev?, key?  (JSON texts, as stored)
--        2 change, JSON: set{}, turns[[id,text]], enqueue[], dequeue[], checkpoints[[id,text]], drop[], begin?[id,text],
--          end_begin?, events[], key?[key,turn], due?, due_by?, quiet?
--        3 the session's id   4 now, ISO 8601   5 now, ms since 1970   6 events kept, about
-- Returns {"ok", field, value, …}, or {why[, turn]}: why = missing | state | generation | nonce | duplicate | rev |
--        idempotent | name_taken.
-- Why    Replicas race: two opens, a commit of a stale sandbox beside the start of the next, an event sent twice over a
--        link that broke. What is checked and what is written must be one step.
local guard, change = cjson.decode(ARGV[1]), cjson.decode(ARGV[2])
local id, at, now, keep = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]

if guard.create then
  local other = redis.call('HGET', KEYS[11], guard.name)
  if other and other ~= id then return { 'name_taken', other } end
  if redis.call('EXISTS', KEYS[1]) == 1 then
    local record = redis.call('HGETALL', KEYS[1])
    table.insert(record, 1, 'ok')
    return record
  end
  redis.call('HSET', KEYS[11], guard.name, id)
  redis.call('SADD', KEYS[12], id)
  redis.call('SADD', KEYS[13], id)
else
  if redis.call('EXISTS', KEYS[1]) == 0 then return { 'missing' } end
  if guard.key then
    local turn = redis.call('HGET', KEYS[8], guard.key)
    if turn then return { 'idempotent', turn } end
  end
  if guard.generation and redis.call('HGET', KEYS[1], 'generation') ~= guard.generation then return { 'generation' } end
  if guard.nonce and redis.call('HGET', KEYS[1], 'nonce') ~= guard.nonce then return { 'nonce' } end
  if guard.seq and tonumber(redis.call('HGET', KEYS[1], 'seq')) >= tonumber(guard.seq) then return { 'duplicate' } end
  if guard.rev and redis.call('HGET', KEYS[1], 'rev') ~= guard.rev then return { 'rev' } end
  if guard.from then
    local state, allowed = redis.call('HGET', KEYS[1], 'state'), false
    for _, from in ipairs(guard.from) do
      if from == state then allowed = true end
    end
    if not allowed then return { 'state' } end
  end
end

-- Writes each [id, text] and puts a new id at the end of the order.
local function write(hash, order, items)
  for _, item in ipairs(items) do
    if redis.call('HSET', hash, item[1], item[2]) == 1 then redis.call('RPUSH', order, item[1]) end
  end
end

for field, value in pairs(change.set) do redis.call('HSET', KEYS[1], field, value) end
if guard.seq then redis.call('HSET', KEYS[1], 'seq', guard.seq) end
if not change.quiet then redis.call('HINCRBY', KEYS[1], 'rev', 1) end
write(KEYS[2], KEYS[3], change.turns)
for _, turn in ipairs(change.dequeue) do redis.call('LREM', KEYS[4], 0, turn) end
for _, turn in ipairs(change.enqueue) do redis.call('RPUSH', KEYS[4], turn) end
write(KEYS[5], KEYS[6], change.checkpoints)
for _, checkpoint in ipairs(change.drop) do
  redis.call('HDEL', KEYS[5], checkpoint)
  redis.call('LREM', KEYS[6], 0, checkpoint)
end
if change.begin then redis.call('HSET', KEYS[7], change.begin[1], change.begin[2]) end
if change.end_begin then redis.call('HDEL', KEYS[7], change.end_begin) end
if change.key then redis.call('HSET', KEYS[8], change.key[1], change.key[2]) end
if change.set.state == '"ARCHIVED"' then redis.call('SREM', KEYS[13], id) end

for _, event in ipairs(change.events) do
  redis.call('XADD', KEYS[9], 'MAXLEN', '~', keep, '*', 'at', at, 'event', event)
end
if #change.events > 0 then redis.call('PUBLISH', 'hangar:wake:events:' .. id, '') end

if change.due == 'never' then
  redis.call('ZREM', KEYS[10], id)
elseif change.due then
  redis.call('ZADD', KEYS[10], change.due, id)
end
if change.due_by then redis.call('ZADD', KEYS[10], 'LT', change.due_by, id) end
local due = tonumber(change.due_by or change.due)
if due and due <= now then redis.call('PUBLISH', 'hangar:wake:due', '') end

local record = redis.call('HGETALL', KEYS[1])
table.insert(record, 1, 'ok')
return record
