"""Data types of planning: brokers, bundles, loads, averages, the snapshot, parameters, codes, errors."""
