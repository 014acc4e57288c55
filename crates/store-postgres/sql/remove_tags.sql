DELETE FROM @.tags t USING unnest($1::text[], $2::bigint[]) AS u(word, seq) WHERE t.word = u.word AND t.seq = u.seq
