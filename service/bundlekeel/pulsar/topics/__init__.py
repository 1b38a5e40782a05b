"""Topics of brokers, read through pulsar-client in a separate process.

These are the topics of the extensible load manager (PIP-192) and that of ResourceGroups (PIP-82). `process` starts and
supervises that process, `child` runs in it, `wire` defines their messages, and `feed` and `channel` are the ports.
Nothing is imported here, so that the child loads no more than it needs.
"""
