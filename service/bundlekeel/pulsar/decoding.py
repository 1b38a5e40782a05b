"""Decodes long responses in a separate process.

A decoder in C blocks the interpreter until it returns, also in a thread. 128 MiB of JSON would block leadership and API
for seconds. `python -m bundlekeel.pulsar.decoding` is the separate process. It decodes one response and ends.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from threading import Timer
from typing import Any, Final, TypeVar

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.pulsar.child_memory import LEAN, ONE_CHILD, limit_memory, memory_share
from bundlekeel.pulsar.formats.external_input import has_more_values

T = TypeVar("T")

# Smaller responses are decoded in a thread, in at most a tenth of a second. Starting a process takes longer.
# The number of values is limited, too: usual topic statistics of 4 MiB have this many, but 4 MiB may have 2,000,000.
IN_THREAD_BYTES: Final = 4 * 1024 * 1024
_IN_THREAD_VALUES: Final = 200_000
_TIMEOUT_SECONDS: Final = 30.0
_RESULT_BYTES: Final = 32 * 1024 * 1024
# Decode one long response at a time, because two would need twice the memory.
_ONE: Final = ThreadPoolExecutor(1, "decode")


async def decoded(decode: Callable[..., T], body: bytes, **options: Any) -> T:
    """Return `decode(body, **options)`. `decode`: a function of a module in `bundlekeel.pulsar.formats`.

    Raises CodecError as `decode` does, and if a large body cannot be decoded within the limits of time and memory.
    """
    if len(body) <= IN_THREAD_BYTES and not has_more_values(body, _IN_THREAD_VALUES):
        return await asyncio.to_thread(decode, body, **options)
    return await asyncio.get_running_loop().run_in_executor(_ONE, partial(_in_child, decode, body, options))


def _in_child(decode: Callable[..., T], body: bytes, options: dict[str, Any]) -> T:
    task = pickle.dumps((memory_share(3), decode.__module__, decode.__name__, options))
    command = [sys.executable, "-P", "-m", __name__]
    if not ONE_CHILD.acquire(timeout=_TIMEOUT_SECONDS):
        text = f"{len(body)} bytes are not decoded: the history store is being compacted"
        raise CodecError(text, code=Code.NO_LOAD_DATA)
    try:
        with subprocess.Popen(
            command,
            env=os.environ | LEAN,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as child:
            limit = Timer(_TIMEOUT_SECONDS, child.kill)
            limit.daemon = True
            limit.start()
            try:
                assert child.stdin is not None
                # No deadlock: the child writes only after it has read everything.
                child.stdin.write(task)
                child.stdin.write(body)
                result, _ = child.communicate()
            finally:
                limit.cancel()
                child.kill()
    except OSError as error:
        raise CodecError(f"{len(body)} bytes are not decoded: {error}", code=Code.REPORT_TOO_LARGE) from None
    finally:
        ONE_CHILD.release()
    if child.returncode:
        text = f"{len(body)} bytes cannot be decoded: the process ended with exit code {child.returncode}"
        raise CodecError(text, code=Code.REPORT_TOO_LARGE)
    value, failure = pickle.loads(result)  # noqa: S301 - written by our own module
    if failure is not None:
        raise CodecError(failure[0], code=failure[1], field=failure[2])
    typed: T = value
    return typed


def _main() -> None:
    memory, module, name, options = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by our own module
    decode = getattr(import_module(module), name)
    limit_memory(memory)
    try:
        result = pickle.dumps((decode(sys.stdin.buffer.read(), **options), None))
    except CodecError as error:
        result = pickle.dumps((None, (str(error), error.code, error.field)))
    if len(result) > _RESULT_BYTES:
        text = f"the response holds more than {_RESULT_BYTES} bytes of values"
        result = pickle.dumps((None, (text, Code.REPORT_TOO_LARGE, "")))
    sys.stdout.buffer.write(result)


if __name__ == "__main__":
    _main()
