"""Decoders of Pulsar's data (metadata store, topics, REST) to values of `model`.

Every function raises only `CodecError`, whatever the bytes are: a bad record never stops the control loop.
"""
