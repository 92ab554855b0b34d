-- Claims a warm sandbox for a session's: the one that has been ready for longest of those that fit.
--
-- KEYS   1 warm sandboxes (hash: id to record, JSON)   2 when each was heard of (sorted set)
-- ARGV   1 owner   2 environment   3 fingerprint   4 the session's sandbox   5 heard of since, ms since 1970
-- Returns the claimed one's record, or nothing. A repeated claim for one sandbox returns the same.
-- Why    Of two opens at once, each must get another one; and a replica that goes on with a start must find what was
--        claimed for it before.
local all = redis.call('HGETALL', KEYS[1])
local best
for i = 1, #all, 2 do
  local warm = cjson.decode(all[i + 1])
  if warm.claimed_by == ARGV[4] then return all[i + 1] end
  if warm.claimed_by == cjson.null and warm.state == 'ready' and warm.owner == ARGV[1] and warm.environment == ARGV[2]
    and warm.fingerprint == ARGV[3] and (not best or warm.changed_at < best.changed_at) then
    local heard = redis.call('ZSCORE', KEYS[2], warm.id)
    if heard and tonumber(heard) >= tonumber(ARGV[5]) then best = warm end
  end
end
if not best then return false end
best.claimed_by = ARGV[4]
best.rev = best.rev + 1
local text = cjson.encode(best)
redis.call('HSET', KEYS[1], best.id, text)
return text
