"""Run `bundlekeel decide` in this process."""

from __future__ import annotations

import io
import json
from typing import Any

from bundlekeel.compat import decide


def ask(*lines: Any) -> list[dict[str, Any]]:
    """Return the responses to these lines. Lines that are strings are sent unchanged, others as JSON."""
    out = io.BytesIO()
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    decide.run([text + b"\n" for text in texts], out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def bundle(namespace: str, index: int) -> str:
    """Return the name of a bundle of the namespace."""
    return f"shop/{namespace}/0x{index:02x}000000_0x{index + 1:02x}000000"
