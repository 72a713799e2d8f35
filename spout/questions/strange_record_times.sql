-- Which letters are of a record whose time no calendar has, and what is that time?
SELECT topic, partition, offset, substr(why, instr(why, ': ') + 2) AS ms_text
FROM unknown
WHERE what = 'letters.record_at'
