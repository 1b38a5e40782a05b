"""Replace this process by another program, which the kernel kills when its launcher (the parent process) dies.

Run as ``python -I -S exec_child.py LAUNCHER_PID CGROUP_FILES PROGRAM ARG…``; CGROUP_FILES is a colon-separated list of
``cgroup.procs`` files to join, possibly empty. This is a separate program, because ``preexec_fn`` can deadlock in a
launcher that has threads.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1


def main(launcher_pid: int, cgroup_files: str, command: list[str]) -> None:
    """Ask the kernel for SIGKILL on the launcher's death, join the cgroups, then exec."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The launcher may have died before the request above was made. Then no signal would come.
    if os.getppid() != launcher_pid:
        sys.exit("the launcher died before its child started")
    for name in filter(None, cgroup_files.split(":")):
        Path(name).write_text(str(os.getpid()))
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
