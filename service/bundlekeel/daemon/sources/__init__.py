"""What is seen: reports, ownership, brokers' settings, policies."""
