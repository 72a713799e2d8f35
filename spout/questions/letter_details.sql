-- What is all that is known of each letter that was named?
SELECT
    input, letters.topic, letters.partition, letters.offset, origin_topic, origin_partition,
    origin_offset, died_at, dead, verdict, operator, error, message, attempts, key, letter_bytes, missing,
    handled, handled_at, handled_by, handled_why, consumer_group, cause, abandoned, timed_out,
    first_emitted_at, record_at, history, stack, headers, payload, payload_bytes,
    added_headers.headers_json AS added_headers
FROM meant
JOIN letters ON letters.rowid = meant.letter
JOIN added_headers
    ON added_headers.topic = letters.topic
    AND added_headers.partition = letters.partition
    AND added_headers.offset = letters.offset
ORDER BY number
