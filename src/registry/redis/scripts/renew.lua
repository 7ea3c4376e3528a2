-- Renews a server's lease and writes what its row says, unless the row is another run's.
-- KEYS[1]  the row
-- ARGV[1]  the run (boot id)
-- ARGV[2]  the lease in ms
-- ARGV[3]  where its relay answers
-- ARGV[4]  its state
-- ARGV[5]  its version
-- Answers the run that was found in the row: ours, another (then nothing was changed), or '' for a missing row.
local boot = redis.call('HGET', KEYS[1], 'boot')
if boot and boot ~= ARGV[1] then
  return boot
end
redis.call('HSET', KEYS[1], 'boot', ARGV[1], 'relay', ARGV[3], 'state', ARGV[4], 'version', ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return boot or ''
