"""Pulsar topics that are read through pulsar-client in a separate process.

These are the topics of the extensible load manager (PIP-192) and of ResourceGroups (PIP-82). `process` starts and
supervises that process, `child` runs in it, `wire` defines the messages between both. `feed` and `channel` implement
the ports. Nothing is imported here, so that the child process loads only what it needs.
"""
