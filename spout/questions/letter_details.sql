-- What is all that is known of each letter that was named?
SELECT
    input, letters.topic, letters.partition, letters.offset, origin_topic, origin_partition,
    origin_offset, died_at, dead, verdict, operator, error, message, attempts, key, letter_bytes, missing,
    handled, handled_at, handled_by, handled_why, consumer_group, cause, abandoned, timed_out,
    first_emitted_at, record_at, history, stack, headers, payload, payload_bytes,
    added_headers.headers_json AS added_headers,
    -- the time of the record as its producer wrote it, such as "1700000000000000 ms after 1970"
    (
        SELECT substr(why, instr(why, ': ') + 2)
        FROM unknown
        WHERE what = 'letters.record_at'
            AND unknown.topic = letters.topic
            AND unknown.partition = letters.partition
            AND unknown.offset = letters.offset
    ) AS time_in_no_calendar
FROM meant
JOIN letters ON letters.rowid = meant.letter
JOIN added_headers
    ON added_headers.topic = letters.topic
    AND added_headers.partition = letters.partition
    AND added_headers.offset = letters.offset
ORDER BY number
