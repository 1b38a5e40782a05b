"""Choose how to run the cluster: from jars, or in containers when a Docker engine answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from dev.cluster.cluster import BeforeBrokers, Cluster
from dev.cluster.spec import ClusterSpec

DOCKER_ANSWER_SECONDS = 10.0


def open_cluster(spec: ClusterSpec, before_brokers: BeforeBrokers | None = None) -> Cluster:
    """Return a cluster that is not started yet, and say on stderr which kind and why.

    ``BUNDLEKEEL_CLUSTER=jars`` forces jars even where Docker answers.
    """
    refusal = why_not_containers()
    if refusal:
        print(f"cluster: running from jars, because {refusal}", file=sys.stderr, flush=True)
        return Cluster(spec, before_brokers)
    print("cluster: running in containers, because a Docker engine answers", file=sys.stderr, flush=True)
    # Only now: testcontainers need not be installed to run from jars.
    from dev.cluster.containers import ContainerCluster  # noqa: PLC0415

    return ContainerCluster(spec, before_brokers)


def why_not_containers() -> str:
    """Return the reason to run from jars; empty when a Docker engine answers."""
    if os.environ.get("BUNDLEKEEL_CLUSTER") == "jars":
        return "BUNDLEKEEL_CLUSTER=jars is set"
    if shutil.which("docker") is None:
        return "there is no `docker` on the PATH"
    try:
        answer = subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=DOCKER_ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        return f"`docker info` gave no answer within {DOCKER_ANSWER_SECONDS:.0f} s"
    return "" if answer.returncode == 0 else "no Docker engine answers `docker info`"
