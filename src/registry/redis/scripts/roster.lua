-- Lists the servers, and drops those whose lease ended a while ago.
-- KEYS[1]  the list of servers, sorted by lease end in ms since 1970
-- ARGV[1]  how long after its end a lease is dropped, in ms
-- Answers the ids that are left; whether a lease has ended is for the server's row to say.
local now = redis.call('TIME')
local ended = now[1] * 1000 + math.floor(now[2] / 1000) - ARGV[1]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', ended))
return redis.call('ZRANGE', KEYS[1], 0, -1)
