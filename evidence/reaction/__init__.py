"""Compare load balancers: which ones balance a cluster, how fast, and how long clients are cut off meanwhile."""
