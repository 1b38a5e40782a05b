"""Rules of quota groups: groups, usage, shares, and the writes that follow from them. Pure."""
