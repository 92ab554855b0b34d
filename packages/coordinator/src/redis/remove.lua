-- Removes everything of a session.
--
-- KEYS   as change.lua
-- ARGV   1 the session's id   2 its name
-- Returns 1.
-- Why    A name that is free while its session is half gone could be taken by a new one and then lost.
if redis.call('HGET', KEYS[11], ARGV[2]) == ARGV[1] then redis.call('HDEL', KEYS[11], ARGV[2]) end
redis.call('SREM', KEYS[12], ARGV[1])
redis.call('SREM', KEYS[13], ARGV[1])
redis.call('ZREM', KEYS[10], ARGV[1])
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9])
redis.call('PUBLISH', 'hangar:wake:events:' .. ARGV[1], '')
return 1
