"""Quota groups: tenants and namespaces that share rate limits over all brokers (PIP-82).

The computations: `groups`: declared groups and their members. `usage`: throughput by group, broker and topic. `lines`:
the throughput at each broker, with the last values of brokers that do not respond. `shares`: the part of a group's
limit that each topic gets. `topic_shares`: division of shares by throughput within a broker. `enforce`: the topic
policies that set these shares. `native`: the same limits as ResourceGroups of Pulsar.
"""
