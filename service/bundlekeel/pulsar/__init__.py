"""Everything that is read from Pulsar or sent to it: stored formats, ZooKeeper, admin API, topics, counters."""
