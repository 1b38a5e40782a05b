"""Reads and writes of rates and ResourceGroups at brokers, and their record for the next leader."""
