SELECT number, record FROM @.queues
