-- Which dead letters are meant, and in which order are they told? Those that died first come first.
CREATE TEMP TABLE meant AS
SELECT
    letters.rowid AS letter,
    -- the key of a record that could not be read is unknown, which is not the key null
    letters.key IS NOT NULL OR is_note OR missing = '' AS has_key,
    row_number() OVER (ORDER BY died_at, named.key, partition, offset) AS number
FROM letters
-- the names of the inputs, a JSON list in the order in which they are told
JOIN json_each(:inputs) AS named ON named.value = letters.input
WHERE (:error IS NULL OR error = :error)
    AND (:operator IS NULL OR operator = :operator)
    AND (:dead IS NULL OR dead = :dead)
    AND (:since IS NULL OR died_at >= :since)
    AND (:until IS NULL OR died_at < :until)
    AND (:has_handled OR handled IS NULL)
    AND (:has_notes OR NOT is_note)
    AND (NOT :is_of_key OR (letters.key IS :key AND has_key))
    -- a JSON list of the places of letters, or of their origins, behind the names of their inputs
    AND (
        :places IS NULL
        OR input || ' ' || printf('%s/%d@%d', topic, partition, offset) IN (SELECT value FROM json_each(:places))
        OR input || ' ' || printf('%s/%d@%d', origin_topic, origin_partition, origin_offset)
            IN (SELECT value FROM json_each(:places))
    )
