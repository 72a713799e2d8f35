-- Of which acker partitions is it unknown which roots are open? They have no State, or an old one that
-- lacks what they have read since.
SELECT acker, strftime('%s', state_at) * 1000 + substr(state_at, -3) AS state_ms
FROM ackers
WHERE state_bytes IS NULL OR (is_behind AND state_at <= :old_until)
ORDER BY acker
