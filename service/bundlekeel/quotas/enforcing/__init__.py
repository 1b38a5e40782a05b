"""Reads and writes rates and ResourceGroups at brokers, and records for the next leader what Bundlekeel set."""
