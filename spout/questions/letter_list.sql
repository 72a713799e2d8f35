-- Which letters are meant, and what is known of each? Of too many the last ones.
SELECT
    input, topic, partition, offset, origin_topic, origin_partition, origin_offset, died_at, dead,
    verdict, operator, error, message, attempts, key, letter_bytes, missing, handled, handled_at,
    handled_by
FROM meant
JOIN letters ON letters.rowid = meant.letter
WHERE number > (SELECT count(*) FROM meant) - :rows_max
    -- a JSON list of those that are wanted: the letter that died first has 1
    AND (:numbers IS NULL OR number IN (SELECT value FROM json_each(:numbers)))
ORDER BY number
