"""Quota groups: sets of tenants and namespaces that share rate limits over all brokers (PIP-82).

`rules` computes, without I/O, what each topic may use: its share of its group's limit. `enforcing` writes these limits
to Pulsar, as topic policies or as ResourceGroups. `published` reads the usage that brokers report to each other.
"""
