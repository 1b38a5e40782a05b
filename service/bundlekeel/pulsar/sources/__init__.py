"""Cluster state as the sidecar reads it: load reports, ownership, brokers' settings, policies."""
