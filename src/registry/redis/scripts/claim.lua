-- Says that a server holds a session of a user.
-- KEYS[1]  the user's entry: server ids, comma-separated
-- ARGV[1]  the id of the server that says so
-- ARGV[2]  how long the entry lives from now, in ms
-- Answers the other ids in the entry.
-- Ids are split off and compared whole: '-' and '.' are magic in Lua patterns, and local1 is not in local10.
local others, mine = {}, false
for id in string.gmatch(redis.call('GET', KEYS[1]) or '', '[^,]+') do
  if id == ARGV[1] then mine = true else others[#others + 1] = id end
end
if mine then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  local ids = { unpack(others) }
  ids[#ids + 1] = ARGV[1]
  redis.call('SET', KEYS[1], table.concat(ids, ','), 'PX', ARGV[2])
end
return others
