-- Which roots are open, and since when? Neighbours that were emitted together are one row, and those
-- that have been open longest come first.
WITH topics AS (
    -- the inputs and their topics, a JSON list in the order in which they are told
    SELECT key AS number, value AS name FROM json_each(:topics)
)
SELECT
    input, topic, partition, offset, end_offset, generation, consumer_group, epoch, session,
    emitted_at, is_held, acker,
    strftime('%s', emitted_at) * 1000 + substr(emitted_at, -3) AS emitted_ms,
    strftime('%s', state_at) * 1000 + substr(state_at, -3) AS state_ms,
    strftime('%s', times_out_at) * 1000 + substr(times_out_at, -3) AS times_out_ms
FROM emissions
-- crossed in this order: an index of the emissions, which may be a hundred thousand, takes as long as all else
CROSS JOIN ackers USING (acker)
CROSS JOIN topics ON topics.name = input || ' ' || topic
WHERE state = 'open' AND emitted_at <= :emitted_until
ORDER BY emitted_at, topics.number, partition, generation, offset
LIMIT :rows_max
