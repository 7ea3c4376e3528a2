-- Takes a server's row away unless it is another run's.
-- KEYS[1]  the row
-- ARGV[1]  the run (boot id)
-- Answers 1 if the row is gone, 0 if it is another run's.
local boot = redis.call('HGET', KEYS[1], 'boot')
if boot and boot ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
return 1
