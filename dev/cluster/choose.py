"""Choose how to run the cluster: from jars, or in containers if the environment has ``CLUSTER=docker``."""

from __future__ import annotations

import os
import sys

from dev.cluster.cluster import BeforeBrokers, Cluster
from dev.cluster.spec import ClusterError, ClusterSpec

VARIABLE = "CLUSTER"


def open_cluster(spec: ClusterSpec, before_brokers: BeforeBrokers | None = None) -> Cluster:
    """Return a cluster that is not started yet: in containers with ``CLUSTER=docker``, else from jars.

    Raises ClusterError if ``CLUSTER`` has another value, or if jars must run on a system other than Linux.
    """
    kind = os.environ.get(VARIABLE) or "jars"
    if kind == "jars" and sys.platform != "linux":
        raise ClusterError(f"from jars the cluster runs on Linux only; in containers: {VARIABLE}=docker")
    if kind == "jars":
        return Cluster(spec, before_brokers)
    if kind != "docker":
        raise ClusterError(f'{VARIABLE} is "jars" (the default) or "docker", not {kind!r}')
    # Imported here, because a cluster from jars does not need Docker's package.
    from dev.cluster.containers import ContainerCluster  # noqa: PLC0415

    return ContainerCluster(spec, before_brokers)
