"""The guard: rules that decide which bundles may move, how many, and when."""
