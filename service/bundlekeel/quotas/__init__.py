"""Quotas that hold over all brokers, for groups of tenants and namespaces (PIP-82). Pure.

`groups`: declared groups and their members. `usage`: throughput by group, broker and topic. `lines`: the throughput at
each broker, with the last values of brokers that do not respond. `shares`: the share of each topic. `topic_shares`:
shares in proportion to throughput within a broker. `enforce`: the resulting topic policies. `native`: the same limits
as ResourceGroups of Pulsar.
"""
