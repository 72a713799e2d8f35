-- What became of each letter that a redrive had emitted again? In the order in which it handled them.
SELECT input, topic, partition, offset, outcome
FROM outcomes
WHERE redrive = :redrive AND outcome IS NOT NULL
ORDER BY rowid
