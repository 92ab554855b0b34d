-- Removes an environment that no session uses, and the secrets that are for it alone.
--
-- KEYS   1 environments of the owner (hash)   2 sessions of the environment (set)   3 secrets of the owner (hash)
-- ARGV   1 name
-- Returns the number of sessions that use it (nothing removed), 0 when removed, -1 when there is none.
-- Why    A session made at the same moment must find its environment or be refused.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -1 end
local users = redis.call('SCARD', KEYS[2])
if users > 0 then return users end
redis.call('HDEL', KEYS[1], ARGV[1])
local prefix = ARGV[1] .. '/'
for _, field in ipairs(redis.call('HKEYS', KEYS[3])) do
  if string.sub(field, 1, #prefix) == prefix then redis.call('HDEL', KEYS[3], field) end
end
return 0
