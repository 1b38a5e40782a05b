"""Quotas of groups of tenants and namespaces that hold over all brokers (PIP-82): what may pass where. Pure.

`groups`: what was declared and who belongs to it. `usage`: what passes, by group, broker and topic. `exchange`: what
participants tell each other. `shares`: who gets how much. `split`: inside a broker and over partitions. `others`: the
rules of PIP-82, of Pulsar's ResourceGroups and of the mailing list, to compare with. `enforce`: which topic policies
that makes.
"""
