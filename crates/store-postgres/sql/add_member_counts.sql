UPDATE @.workflows w SET counts = ARRAY(SELECT greatest(w.counts[i] + ($2::bigint[])[(u.n - 1) * 10 + i], 0) FROM generate_series(1, 10) i ORDER BY i)
FROM unnest($1::bigint[]) WITH ORDINALITY AS u(number, n) WHERE w.number = u.number
