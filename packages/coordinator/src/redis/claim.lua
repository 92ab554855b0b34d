-- Claims due sessions: takes those whose time has come and sets their time to the claim's end.
--
-- KEYS   1 due work (sorted set: session, ms since 1970)
-- ARGV   1 now   2 the claim's end   3 at most how many
-- Returns the sessions.
-- Why    Of two replicas that look at once, one gets a session; if it dies, the claim's end makes it due again.
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])
for _, session in ipairs(due) do redis.call('ZADD', KEYS[1], ARGV[2], session) end
return due
