-- How many of the letters that are meant are there by input, cause of death, error, bolt, age and key?
--
-- Of each kind the values with the most letters have a row, and all others one row together, which
-- says how many values they are. Of two values with as many letters, the one of which a letter died
-- first comes first.
WITH counted_letters AS (
    SELECT
        input, dead, error, operator, key, has_key, died_at, number,
        coalesce(handled, 'no') AS handled,
        CASE
            WHEN died_at IS NULL THEN 'unknown'
            WHEN died_at > :a_minute_ago THEN 'below 1 min'
            WHEN died_at > :an_hour_ago THEN 'below 1 h'
            WHEN died_at > :a_day_ago THEN 'below 1 d'
            WHEN died_at > :a_week_ago THEN 'below 7 d'
            ELSE '7 d or more'
        END AS age
    FROM meant
    JOIN letters ON letters.rowid = meant.letter
),
-- a grouping for each kind: one over the values of all kinds takes twice as long
counted (place, kind, value, letters, first, last, first_number) AS (
    SELECT 1, 'input', input, count(*), min(died_at), max(died_at), min(number)
    FROM counted_letters GROUP BY input
    UNION ALL
    SELECT 2, 'dead', dead, count(*), min(died_at), max(died_at), min(number)
    FROM counted_letters GROUP BY dead
    UNION ALL
    SELECT 3, 'error', error, count(*), min(died_at), max(died_at), min(number)
    FROM counted_letters GROUP BY error
    UNION ALL
    SELECT 4, 'operator', operator, count(*), min(died_at), max(died_at), min(number)
    FROM counted_letters GROUP BY operator
    UNION ALL
    SELECT 5, 'age', age, count(*), min(died_at), max(died_at), min(number)
    FROM counted_letters GROUP BY age
    UNION ALL
    SELECT 6, 'handled', handled, count(*), min(died_at), max(died_at), min(number)
    FROM counted_letters GROUP BY handled
    UNION ALL
    SELECT 7, 'key', key, count(*), min(died_at), max(died_at), min(number)
    FROM counted_letters WHERE has_key GROUP BY key
),
ranked AS (
    SELECT *, row_number() OVER (PARTITION BY place ORDER BY letters DESC, first_number) AS rank
    FROM counted
)
SELECT place, kind, value, letters, first, last, 0 AS other_values, rank
FROM ranked
WHERE rank <= :values_max
UNION ALL
SELECT place, kind, NULL, sum(letters), NULL, NULL, count(*), :values_max + 1
FROM ranked
WHERE rank > :values_max
GROUP BY place, kind
ORDER BY place, rank
