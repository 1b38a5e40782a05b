"""The usage of ResourceGroups that brokers publish (PIP-82): its reader, its decoder and its display."""
