-- Which redrives were there, and what became of the letters of each? Those that began first come first.
WITH counted AS (
    SELECT
        input, redrive,
        count(*) AS handled,
        count(*) FILTER (WHERE outcome = 'ACKED') AS acked,
        count(*) FILTER (WHERE outcome = 'DIED') AS died,
        count(*) FILTER (WHERE outcome = 'OPEN') AS open,
        count(*) FILTER (WHERE outcome IN ('GONE', 'UNKNOWN')) AS not_found
    FROM outcomes
    GROUP BY input, redrive
)
SELECT
    redrives.redrive, redrives.input, action, state, begun_by, why, which, letters, begun_at, ended_at,
    ended_by,
    coalesce(counted.handled, 0) AS handled,
    -- nothing becomes of letters that were dropped
    iif(action = 'REPLAYED', coalesce(counted.acked, 0), NULL) AS acked,
    iif(action = 'REPLAYED', coalesce(counted.died, 0), NULL) AS died,
    iif(action = 'REPLAYED', coalesce(counted.open, 0), NULL) AS open,
    iif(action = 'REPLAYED', coalesce(counted.not_found, 0), NULL) AS not_found
FROM redrives
LEFT JOIN counted ON counted.input = redrives.input AND counted.redrive = redrives.redrive
WHERE :redrive IS NULL OR redrives.redrive = :redrive
ORDER BY begun_at, redrives.rowid
