"""Print the least CPU time and memory of five runs of commands and of a ready sidecar: `python -m evidence.lean`.

The sidecar runs with default settings and a metadata store that does not respond. The test
`test_a_sidecar_loads_what_it_needs` checks which libraries it loads.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import yaml

ROUNDS = 5
_MEBIBYTE = 2**20


@contextlib.contextmanager
def listening(directory: Path, *, before: str = "") -> Iterator[subprocess.Popen[str]]:
    """Start a sidecar process and yield it when it listens. Kill it at the end. `before`: Python code that it runs
    first.
    """
    settings = {
        # No server listens on this port.
        "metadata_store": "zk:127.0.0.1:1",
        "journal": {"path": str(directory / "journal.jsonl")},
        "api": {"port": 0, "socket": str(directory / "sock")},
        "logging": {"format": "json"},
    }
    (directory / "settings.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    code = f"{before}\nfrom bundlekeel.wiring import main; main()"
    command = [sys.executable, "-c", code, "run", "-c", str(directory / "settings.yaml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            listening_line = next((line for line in process.stderr if '"API listens"' in line), None)
            if listening_line is None:
                raise RuntimeError(f"the sidecar ended with {process.wait()}")
            yield process
        finally:
            process.kill()


def _sidecar() -> tuple[float, float]:
    with TemporaryDirectory() as folder, listening(Path(folder)) as process:
        process_info = psutil.Process(process.pid)
        spent = process_info.cpu_times()
        return spent.user + spent.system, process_info.memory_info().rss / _MEBIBYTE


def _command(*arguments: str) -> tuple[float, float]:
    # Not `ru_maxrss`, because that of a child process starts with the memory of its parent.
    status = 'import atexit, sys; atexit.register(lambda: sys.stderr.write(open("/proc/self/status").read()))'
    code = f"{status}\nfrom bundlekeel.wiring import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    resident = peak(process.stderr)
    used = os.wait4(process.pid, 0)[2]
    process.stderr.close()
    return used.ru_utime + used.ru_stime, resident


def peak(status: Iterable[str]) -> float:
    """Return the largest resident memory of a process in MiB, from the lines of its /proc/PID/status."""
    line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def figures() -> Iterator[tuple[str, float, float]]:
    """Yield each command with its CPU seconds and its largest resident memory in MiB."""
    for name, measure in {
        "bundlekeel --version": lambda: _command("--version"),
        "bundlekeel --help": lambda: _command("--help"),
        "bundlekeel run, ready": _sidecar,
    }.items():
        rounds = [measure() for _ in range(ROUNDS)]
        cpu, resident = (min(column) for column in zip(*rounds, strict=True))
        yield name, cpu, resident


if __name__ == "__main__":
    for line in figures():
        print("{:24}{:6.2f} s{:7.1f} MiB".format(*line))
