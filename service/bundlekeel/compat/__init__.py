"""Pulsar's own shedders and placements: exact copies, and the command `decide`."""
