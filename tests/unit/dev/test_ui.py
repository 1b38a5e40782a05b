"""`python -m dev.ui serve` leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice

import httpx
import pytest

from dev.ui import ROOT


def test_serve_ends_with_its_process() -> None:
    command = [sys.executable, "-m", "dev.ui", "serve"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            # Among the lines of its log.
            (url,) = islice((line.split()[0] for line in process.stdout if line.startswith("http://")), 1)
            assert httpx.get(url).status_code == 200
        finally:
            process.terminate()
            code = process.wait(timeout=60)
    assert code == 128 + 15
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)
