"""The simulator: a virtual Pulsar cluster with the delays of a real one, and its balancers.

Pure: standard library, numpy, `model` and `planning`. It has its own time, and randomness comes only from seeds, so the
same scenario, strategy and seed give the same run, byte for byte.
"""
