-- Changes or removes one warm sandbox's record, if nothing changed it since it was read.
--
-- KEYS   1 warm sandboxes (hash: id to record, JSON)   2 when each was heard of (sorted set)
-- ARGV   1 id   2 the revision that was read   3 the new record, JSON; empty: it goes
-- Returns 1 when done, 0 when it is another one by now or gone.
-- Why    What is retired must not be claimed in the same moment.
local text = redis.call('HGET', KEYS[1], ARGV[1])
if not text or cjson.decode(text).rev ~= tonumber(ARGV[2]) then return 0 end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
redis.call('PUBLISH', 'hangar:wake:warm:' .. ARGV[1], '')
return 1
