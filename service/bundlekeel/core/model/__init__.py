"""The nouns of a plan: brokers, bundles, loads, averages, the snapshot, parameters, codes, errors."""
