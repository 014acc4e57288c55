SELECT e.queue, e.external_id, e.seq FROM unnest($1::int[], $2::text[]) AS u(queue, external_id) JOIN @.external_ids e USING (queue, external_id)
