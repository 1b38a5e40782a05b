"""Run a real Pulsar cluster on this machine, for tests and experiments."""

from dev.cluster.choose import open_cluster
from dev.cluster.cluster import Cluster
from dev.cluster.spec import BrokerInfo, ClusterError, ClusterSpec

__all__ = ["BrokerInfo", "Cluster", "ClusterError", "ClusterSpec", "open_cluster"]
