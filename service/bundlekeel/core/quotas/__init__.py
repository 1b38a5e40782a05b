"""Quotas of groups of tenants and namespaces that hold over all brokers (PIP-82): what may pass where. Pure.

`groups`: what was declared and who belongs to it. `usage`: what passes, by group, broker and topic. `lines`: that at
each broker, with the last figures of those that do not answer. `shares`: who gets how much. `split`: by past usage
inside a broker. `enforce`: which topic policies that makes. `native`: the same by Pulsar's ResourceGroups.
"""
