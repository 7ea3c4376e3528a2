-- Takes a server's row if it is free or of the same run. The row expires with the lease, so a row that is there is
-- a lease that has not ended.
-- KEYS[1]  the row
-- ARGV[1]  the run (boot id)
-- ARGV[2]  the lease in ms
-- ARGV[3]  where its relay answers
-- ARGV[4]  its state
-- ARGV[5]  its version
-- Answers nothing when the row is ours, else the other run and what is left of its lease in ms.
local boot = redis.call('HGET', KEYS[1], 'boot')
if boot and boot ~= ARGV[1] then
  return { boot, redis.call('PTTL', KEYS[1]) }
end
redis.call('HSET', KEYS[1], 'boot', ARGV[1], 'relay', ARGV[3], 'state', ARGV[4], 'version', ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {}
