"""Exact copies of Pulsar's own shedders and placements, and the command `bundlekeel decide`."""
