-- Ends a claim: the session's next time, unless somebody asked for a look since.
--
-- KEYS   1 due work
-- ARGV   1 session   2 the claim's end, as claimed   3 next time, or "never"
-- Returns 1 when set, 0 when somebody asked since.
-- Why    A nudge that came while the work was done must not be lost. (Without a time, the work itself took the session off;
--        what its look found to be due later still counts.)
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if score and tonumber(score) ~= tonumber(ARGV[2]) then return 0 end
if ARGV[3] == 'never' then redis.call('ZREM', KEYS[1], ARGV[1]) else redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1]) end
return 1
