DELETE FROM @.tags t USING unnest($1::text[], $2::bigint[]) AS u(term, seq) WHERE t.term = u.term AND t.seq = u.seq
