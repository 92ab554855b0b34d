-- Puts a command into a sandbox's stream, once per id.
--
-- KEYS   1 commands (stream)   2 command ids (hash: id to stream id, or "done")
-- ARGV   1 id   2 command, JSON   3 sandbox
-- Returns 1 when put, 0 when the id was there.
-- Why    Another replica that goes on with a suspend gives the same command again; it must not run twice.
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return 0 end
local entry = redis.call('XADD', KEYS[1], '*', 'id', ARGV[1], 'command', ARGV[2])
redis.call('HSET', KEYS[2], ARGV[1], entry)
redis.call('PUBLISH', 'hangar:wake:commands:' .. ARGV[3], '')
return 1
