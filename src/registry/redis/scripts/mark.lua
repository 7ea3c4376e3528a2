-- Notes when a server's lease ends, by the clock of Redis.
-- KEYS[1]  the list of servers, sorted by lease end in ms since 1970
-- ARGV[1]  the server's id
-- ARGV[2]  the lease in ms
local now = redis.call('TIME')
local ends = now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[2]
redis.call('ZADD', KEYS[1], string.format('%.0f', ends), ARGV[1])
return 1
