"""The simulator: a virtual Pulsar cluster that reports as late and as rarely as a real one, and what drives it.

Pure: standard library, numpy and `bundlekeel.core`. Time is the cluster's own, randomness comes from seeds only, so
the same scenario, strategy and seed give the same run, byte for byte.
"""
