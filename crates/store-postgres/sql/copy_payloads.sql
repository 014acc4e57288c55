COPY @.payloads (seq, kind, bytes) FROM STDIN (FORMAT binary)
