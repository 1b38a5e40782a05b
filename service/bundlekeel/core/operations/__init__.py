"""What people ask for in the cluster's own terms: brokers emptied or filled, bundles moved or split by hand. Pure."""
