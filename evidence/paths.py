"""Count the functions and files through which five paths of the product pass, by tracing tests.

A path consists of parts. One test is traced for each part. The part ends where the product calls a test double, such as
the fake admin client, or else at its deepest call stack. A stack continues across asyncio tasks and worker threads. A
function that occurs in several parts counts once. As a pytest plugin (`-p evidence.paths`) this module writes the
stack of one part, of the working tree or of an older commit.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import pytest

# Environment variable with the test and the end of the part, as JSON, for the process that runs the test.
_PART, _OUTPUT = "BUNDLEKEEL_PATH_END", "BUNDLEKEEL_PATH_OUTPUT"
# Number of calls of each function whose depth is measured, if the part has no named end.
_FIRST_CALLS: Final = 20
_NO_CALLS: Final = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<module>")


class Part(NamedTuple):
    """One part: the test that covers it, and the method of a test double that ends it ("": the deepest stack).

    `file` is a glob pattern. `end` can contain several names, with `|` between them, because older commits have other
    test doubles. `through`: text that a frame of the stack must contain, if the test reaches the same end in several
    ways.
    """

    file: str
    test: str
    end: str = ""
    through: str = ""


PATHS: Final = {
    "`decide`": (Part("test_decide.py", "test_memory_lives_from_turn_to_turn_until_a_reset"),),
    "history frame to adopted threshold, without Spark": (
        Part("test_recorder.py", "test_every_cycle_of_the_leader_replays", "publish"),
        Part("test_backtest_run.py", "test_same_plans"),
        Part("test_calibration.py", "test_adopted_by_itself_and_in_every_plan", "write_shared", "calibration"),
    ),
    "drain request from HTTP to its last move": (
        Part("test_operations.py", "test_a_dry_run_needs_no_reason and drain", "drain|_call_async"),
        Part("test_drain*.py", "test_a_broker_is_emptied_with_what_nobody_reports", "unload"),
    ),
    "quota rate from cycle to broker": (
        Part("test_quotas.py", "test_the_limit_holds_and_everybody_has_a_part", "set_topic_rate"),
    ),
}


def measure(root: Path) -> dict[str, tuple[int, int] | None]:
    """Return the number of functions and files of each path; None where a test or its end does not exist."""
    counts: dict[str, tuple[int, int] | None] = {}
    for name, parts in PATHS.items():
        stacks = [_trace(root, part) for part in parts]
        frames = {frame for stack in stacks for frame in stack}
        counts[name] = (len(frames), len({frame.split()[0] for frame in frames})) if all(stacks) else None
    return counts


def _trace(root: Path, part: Part) -> list[str]:
    """Return the stack of a part, outermost frame first; empty if it cannot be traced."""
    stacks: list[list[str]] = []
    name = f"def {part.test.partition(' ')[0]}("
    for file in sorted((root / "tests").rglob(part.file)):
        if name not in file.read_text(encoding="utf-8"):
            continue
        output = root / ".run" / "path.json"
        output.parent.mkdir(exist_ok=True)
        output.unlink(missing_ok=True)
        own = Path(__file__).resolve().parent.parent
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (root / "service", root, own))),
            _PART: json.dumps([part.end, part.through, str(root)]),
            _OUTPUT: str(output),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "evidence.paths", "--timeout", "600"]
        subprocess.run(
            [*command, str(file), "-k", part.test], cwd=root, env=environment, stdout=subprocess.DEVNULL, check=False
        )
        if output.exists():
            stacks.append(json.loads(output.read_text(encoding="utf-8")))
    return max(stacks, key=len, default=[])


class _Tracer:
    """Stores the deepest call stack of the package's functions that reaches the end of the part."""

    def __init__(self, end: str, through: str, root: str) -> None:
        self._ends, self._through = end.split("|") if end else [], through
        self._package, self._tests = f"{root}/service/bundlekeel/", f"{root}/tests/"
        self._threads = threading.local()
        self._calls: Counter[CodeType] = Counter()
        self._creators: WeakKeyDictionary[asyncio.Task[Any], list[str]] = WeakKeyDictionary()
        self.stack: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code.co_name not in self._ends if self._ends else not code.co_filename.startswith(self._package):
            return
        self._calls[code] += 1
        if code.co_filename.startswith(self._tests) if self._ends else self._calls[code] <= _FIRST_CALLS:
            stack = self.here(frame)
            if len(stack) > len(self.stack) and any(self._through in entry for entry in stack):
                self.stack = stack

    def here(self, frame: FrameType | None) -> list[str]:
        """Return the package frames that lead to this frame, outermost first."""
        since: list[str] = []
        while frame is not None and not frame.f_code.co_filename.endswith("asyncio/events.py"):
            code = frame.f_code
            if code.co_filename.startswith(self._package) and code.co_name not in _NO_CALLS:
                since.append(f"{code.co_filename.removeprefix(self._package)} {code.co_qualname}")
            frame = frame.f_back
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return [*getattr(self._threads, "caller", []), *reversed(since)]
        return [*(self._creators.get(task, []) if task else []), *reversed(since)]

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Trace all threads; record for each task and each call in a thread the stack that started it."""
        create, execute = asyncio.BaseEventLoop.create_task, asyncio.BaseEventLoop.run_in_executor

        def create_task(loop: asyncio.BaseEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
            task = create(loop, coro, **options)
            self._creators[task] = self.here(sys._getframe(1))
            return task

        def run_in_executor(loop: asyncio.BaseEventLoop, executor: Any, func: Any, *arguments: Any) -> Any:
            caller = self.here(sys._getframe(1))

            def call() -> Any:
                self._threads.caller = caller
                sys.setprofile(self)
                return func(*arguments)

            return execute(loop, executor, call)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.BaseEventLoop, "create_task", create_task)
            patch.setattr(asyncio.BaseEventLoop, "run_in_executor", run_in_executor)
            sys.setprofile(self)
            try:
                yield
            finally:
                sys.setprofile(None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Trace each test; write the deepest stack of all."""
    tracer = _Tracer(*json.loads(os.environ[_PART]))
    with tracer.installed():
        yield
    output = Path(os.environ[_OUTPUT])
    before = json.loads(output.read_text(encoding="utf-8")) if output.exists() else []
    if len(tracer.stack) > len(before):
        output.write_text(json.dumps(tracer.stack), encoding="utf-8")
