-- Stores a command's result and takes the command off its stream.
--
-- KEYS   1 commands (stream)   2 command ids (hash)   3 the result
-- ARGV   1 id   2 result, JSON; empty: none   3 seconds that it is kept   4 sandbox
-- Returns 1 when stored, 0 when the id has one or was never given.
-- Why    The first result of an id stays, whatever a sandbox sends later, and none is made for an id nobody gave.
local entry = redis.call('HGET', KEYS[2], ARGV[1])
if not entry or entry == 'done' then return 0 end
redis.call('XDEL', KEYS[1], entry)
redis.call('HSET', KEYS[2], ARGV[1], 'done')
if ARGV[2] ~= '' then redis.call('SET', KEYS[3], ARGV[2], 'EX', ARGV[3]) end
redis.call('PUBLISH', 'hangar:wake:results:' .. ARGV[4], '')
return 1
