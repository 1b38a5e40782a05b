"""The process of the traffic generator: it reads JSON lines from standard input and responds with JSON lines.

Its argument is a directory for logs. First line in: ``Job``; then "acked", "report" or "stop" lines, or new
rates by topic. Answers: {"ready": true}, counts by topic, a report, or {"error": "…"}. The end of standard input means
the parent is gone: the process removes the directory and ends.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from dev.traffic.engine import Engine
from dev.traffic.spec import TopicPlan, TrafficError, TrafficSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The first input line: what traffic to generate."""

    spec: TrafficSpec
    plans: list[TopicPlan]


def _private_stdout() -> BinaryIO:
    """Return standard output for responses, and redirect all other output, such as that of libraries, to standard
    error.
    """
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return answers


def _commands(directory: Path) -> queue.SimpleQueue[bytes]:
    """Return a queue of the lines of standard input. A thread reads them, so that the end of the parent process is
    noticed while a command runs.
    """
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line.strip())
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(0)

    threading.Thread(target=read, name="commands", daemon=True).start()
    return lines


def main() -> None:
    """Run one job until the parent sends "stop" or dies."""
    # Ignore Ctrl-C, which the whole process group receives. The parent stops this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = _private_stdout()

    def answer(message: object) -> None:
        answers.write(msgspec.json.encode(message) + b"\n")

    directory = Path(sys.argv[1])
    commands = _commands(directory)
    job = msgspec.json.decode(commands.get(), type=Job)
    engine = Engine(job.spec, job.plans, str(directory / "client.log"))
    try:
        engine.start()
    except TrafficError as error:
        answer({"error": str(error)})
        os._exit(1)
    answer({"ready": True})
    while (command := commands.get()) != b"stop":
        if command.startswith(b"{"):
            engine.set_rates(msgspec.json.decode(command, type=dict[str, float]))
            answer({"ready": True})
        else:
            answer(engine.acked() if command == b"acked" else engine.report())
    answer(engine.stop())
    engine.close()
    # Exit without waiting for threads of the client library.
    os._exit(0)


if __name__ == "__main__":
    main()
