"""Give a process its own CPU quota through cgroups, version 1 or 2, where they are writable."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from dev.cluster.spec import CpuIsolation

PERIOD_MICROSECONDS = 100_000


@dataclass
class CpuGroups:
    """The cgroups of one cluster: one parent group per hierarchy, and a group for each process below it."""

    isolation: CpuIsolation = "none"
    parents: list[Path] = field(default_factory=list)

    def create(self, name: str, cores: float) -> list[Path]:
        """Create the cgroup of process `name`, limited to `cores`. Return the ``cgroup.procs`` files that the process
        must join.

        Raises OSError if the kernel refuses. An existing group is used again, for example after a restart of the
        process.
        """
        joined = []
        for parent in self.parents:
            group = parent / name
            group.mkdir(exist_ok=True)
            write_quota(group, cores)
            joined.append(group / "cgroup.procs")
        return joined


def write_quota(group: Path, cores: float) -> None:
    """Limit the cgroup at this path to ``cores``, in the files of cgroups version 1 or 2."""
    quota = int(cores * PERIOD_MICROSECONDS)
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")
    elif (group / "cpu.cfs_quota_us").exists():
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
        (group / "cpu.cfs_quota_us").write_text(str(quota))


def open_groups(mountinfo: str | None = None) -> CpuGroups:
    """Create the parent cgroups of this cluster. If this is not possible, the result has the isolation "none".

    ``mountinfo``: text that tests use instead of /proc/self/mountinfo.
    """
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    name = f"bundlekeel-{os.getpid()}-{secrets.token_hex(3)}"
    v1, v2 = cgroup_mounts(text)
    if v1 and (groups := _open_v1(v1, name)):
        return groups
    if v2 and (groups := _open_v2(v2, name)):
        return groups
    return CpuGroups()


def cgroup_mounts(mountinfo: str) -> tuple[list[Path], Path | None]:
    """Return the mount points of the cpu and cpuacct hierarchies of cgroups version 1, and that of version 2."""
    v1: list[Path] = []
    v2: Path | None = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        mount = Path(fields[4])
        if kind[0] == "cgroup2":
            v2 = mount
        elif kind[0] == "cgroup" and {"cpu", "cpuacct"} & set(kind[2].split(",")):
            v1.append(mount)
    return v1, v2


def _open_v1(mounts: list[Path], name: str) -> CpuGroups | None:
    parents = [mount / name for mount in mounts]
    try:
        for parent in parents:
            parent.mkdir()
    except OSError:
        _discard(parents)
        return None
    return CpuGroups("cgroup-v1", parents)


def _open_v2(mount: Path, name: str) -> CpuGroups | None:
    parent = mount / name
    try:
        if "cpu" not in (mount / "cgroup.controllers").read_text().split():
            return None
        if "cpu" not in (mount / "cgroup.subtree_control").read_text().split():
            (mount / "cgroup.subtree_control").write_text("+cpu")
        parent.mkdir()
        (parent / "cgroup.subtree_control").write_text("+cpu")
    except OSError:
        _discard([parent])
        return None
    return CpuGroups("cgroup-v2", [parent])


def _discard(parents: list[Path]) -> None:
    for parent in parents:
        if parent.is_dir():
            parent.rmdir()
