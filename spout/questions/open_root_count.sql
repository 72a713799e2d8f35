-- How many roots are open that were emitted by then?
SELECT coalesce(sum(end_offset - offset), 0) AS roots
FROM emissions
WHERE state = 'open' AND emitted_at <= :emitted_until
