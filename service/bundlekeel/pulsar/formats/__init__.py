"""Decoders from bytes of Pulsar's metadata store to values of `model`. They accept other spellings, but not other
meanings.

Every function raises only `CodecError`, whatever the bytes are: a bad record never stops the cycle.
"""
