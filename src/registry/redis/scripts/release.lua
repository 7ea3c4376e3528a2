-- Says that a server holds no session of a user any more.
-- KEYS[1]  the user's entry: server ids, comma-separated
-- ARGV[1]  the id of the server that says so
-- Answers the other ids in the entry. How long it lives is theirs to say, so it is not touched.
local others, mine = {}, false
for id in string.gmatch(redis.call('GET', KEYS[1]) or '', '[^,]+') do
  if id == ARGV[1] then mine = true else others[#others + 1] = id end
end
if mine and #others == 0 then
  redis.call('DEL', KEYS[1])
elseif mine then
  redis.call('SET', KEYS[1], table.concat(others, ','), 'KEEPTTL')
end
return others
