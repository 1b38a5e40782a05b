"""Generate the samples of output in pages, mostly runbooks: a command runs against an in-memory sidecar in the
situation that the page is about. Pages have a mark before each sample:

    <!-- sample: COMMAND; SITUATION; LINES -->

LINES is a list of texts, separated by commas. Only lines that start with one of these texts are shown, with the lines
that continue them. `…` replaces the other lines. Without LINES all lines are shown. The mark `<!-- file: PATH -->`
shows a source file.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast
from unittest import mock

import httpx
import structlog
from typer.testing import CliRunner

from bundlekeel.api import ApiServer
from bundlekeel.cli.app import make_app
from bundlekeel.wiring.features import commands, routes
from dev.runbook_situations import SITUATIONS, SampleWiring, Situation, situated, write_history
from tests.support.loop_thread import LoopThread

_COLUMNS: Final = "96"
_SOCKET: Final = "keel.sock"
_LEFT_OUT: Final = "…"
# A sample's indentation and mark, and the block of the sample, if it has been written.
_MARK: Final = re.compile(r"^( *)<!-- sample: (.+?) -->\n(?:\s*```text\n.*?^ *```\n)?", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"^<!-- file: (\S+) -->\n(?:\n```\w+\n.*?^```\n)?", re.MULTILINE | re.DOTALL)
_ROOT: Final = Path(__file__).resolve().parent.parent


def with_samples(page: Path) -> str:
    """Return the text of a page with new samples of output and source files. Raises KeyError if a situation does not
    exist.
    """
    return _FILE.sub(_shorten, _MARK.sub(_renewed, page.read_text(encoding="utf-8")))


def _shorten(match: re.Match[str]) -> str:
    path = match[1]
    kind = "ini" if path.endswith(".service") else "yaml"
    return f"<!-- file: {path} -->\n\n```{kind}\n{(_ROOT / path).read_text(encoding='utf-8')}```\n"


def _renewed(match: re.Match[str]) -> str:
    indent, mark = match.groups()
    command, situation, lines = (*(part.strip() for part in mark.split(";")), "")[:3]
    printed = _select(sample(command, situation), [word.strip() for word in lines.split(",") if word.strip()])
    name = "" if command.startswith("get ") else "bundlekeel "
    block = ["```text", f"$ {name}{command}", *printed, "```"]
    return "\n".join([f"{indent}<!-- sample: {mark} -->", "", *(f"{indent}{line}".rstrip() for line in block), ""])


def _select(lines: list[str], begin: list[str]) -> list[str]:
    """Return the lines that start with one of the texts in `begin` (spaces ignored), the lines that continue them, and
    the exit code. Other lines become one `…`.
    """
    if not begin:
        return lines
    lines_out: list[str] = []
    inside = False
    for line in filter(None, lines):
        if line[:1].strip():
            inside = " ".join(line.split()).startswith((*begin, "(exit code"))
        if inside or lines_out[-1:] != [_LEFT_OUT]:
            lines_out.append(line if inside else _LEFT_OUT)
    return lines_out


class _Served(LoopThread):
    def __init__(self, at: Situation) -> None:
        super().__init__("sample")
        self._at = at
        self.server: ApiServer

    async def _listen(self) -> None:
        server_service = cast(Any, await situated(self._at))
        self.server = ApiServer(server_service, "127.0.0.1", 0, Path(_SOCKET), features=routes())
        await self.server.start()

    async def _close(self) -> None:
        await self.server.stop()


def sample(command: str, situation: str) -> list[str]:
    """Return the lines that a command prints in a situation; the exit code last, when it is not 0."""
    wiring = SampleWiring(at := SITUATIONS[situation])
    with _isolated(), structlog.testing.capture_logs(), _Served(at) as served:
        words = shlex.split(command)
        if words[0] == "get":
            return httpx.get(f"{served.server.url}{words[1]}").text.strip().splitlines()
        environment = {"BUNDLEKEEL_SOCKET": _SOCKET}
        if words[0] == "history":
            write_history(Path("history"))
            environment["BUNDLEKEEL__HISTORY__URI"] = "history"
        app = make_app(lambda: wiring, commands())
        result = CliRunner().invoke(app, words, env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    code = [f"(exit code {result.exit_code})"] if result.exit_code else []
    # Standard error only if the command failed, because it contains lines of progress on a slow machine.
    text = result.output if code else result.stdout
    return [*(line.rstrip() for line in text.strip().splitlines()), *code]


@contextlib.contextmanager
def _isolated() -> Iterator[None]:
    """Change to an empty directory, in UTC, without the environment variables that Bundlekeel reads."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BUNDLEKEEL")}
    terminal = {"COLUMNS": _COLUMNS, "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), mock.patch.dict(os.environ, clear=True):
        os.environ.update(environment | terminal)
        time.tzset()
        yield
    time.tzset()
