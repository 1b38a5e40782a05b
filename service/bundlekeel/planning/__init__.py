"""Planning: decide which bundles move or are split, from a snapshot of the cluster. No I/O."""
