"""Bytes of Pulsar's metadata store to values of `core`: tolerant to spelling, strict to meaning.

Every function raises `CodecError` only, whatever the bytes are: a bad record costs itself, never the cycle.
"""
