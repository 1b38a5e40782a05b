"""Topics of brokers, read through pulsar-client in a process of its own: those of the extensible load manager
(PIP-192) and that of ResourceGroups (PIP-82).

`process` starts that process and keeps it going, `child` is what runs in it, `wire` what the two say to each other;
`feed` and `channel` are the ports. Nothing is imported here: the child should load no more than it needs.
"""
