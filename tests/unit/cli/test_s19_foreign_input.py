"""S.19: names and files that no command can use give one clear error, in bounded memory."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from typer.testing import CliRunner

from bundlekeel.cli.output import ProgressLine
from bundlekeel.records.chain import GENESIS, seal
from tests.support.apps import make_app
from tests.support.fake_wiring import FakeWiring
from tests.support.http_server import serving

APP = make_app(cast(Any, FakeWiring))
MEMORY_BYTES = 4 * 2**30


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all commands of the parser, with their path."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))
    if path and command.callback is not None:
        yield path, command


def lines(command: Any, value: str) -> Iterator[list[str]]:
    """Yield a command line for each parameter with a value, which is `value`; other required parameters are `a`."""
    for filled in command.params:
        if not getattr(filled, "is_flag", False):
            line = list[str]()
            for param in command.params:
                if param is filled or param.required:
                    text = value if param is filled else "a"
                    line += [param.opts[0], text] if param.param_type_name == "option" else [text]
            yield line


@pytest.fixture
def little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty directory, no sidecar, and an end of memory before that of the machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUNDLEKEEL_URL", "http://127.0.0.1:9")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


ALL = [pytest.param(path, command, id=" ".join(path)) for path, command in commands(typer.main.get_command(APP))]


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(("path", "command"), ALL)
def test_s19_a_text_of_5000_letters_is_one_clear_error(path: tuple[str, ...], command: Any) -> None:
    """Every parameter of every command refuses it without repeating it."""
    for line in lines(command, "x" * 5_000):
        result = CliRunner().invoke(APP, [*path, *line])
        assert (result.exit_code, len(result.stderr) < 500) == (2, True), (
            line[0],
            repr(result.exception),
            result.stderr,
        )


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("value", ["x" * 300, "/dev/zero"])
@pytest.mark.parametrize(("path", "command"), ALL)
def test_s19_no_command_reads_a_file_without_end(path: tuple[str, ...], command: Any, value: str) -> None:
    """Nor is a name that no file system takes a traceback, whatever parameter of whatever command it is given for."""
    for line in lines(command, value):
        result = CliRunner().invoke(APP, [*path, *line])
        assert not isinstance(result.exception, OSError | MemoryError), (line[0], repr(result.exception))


@pytest.mark.parametrize("command", ["brokers", "status"])
@pytest.mark.parametrize(
    ("body", "message"), [(b"[" * 200_000, "is not a sidecar"), (b" " * 9_000_000 + b"{}", "more than 8 MiB")]
)
def test_s19_a_response_of_another_program(
    command: str, body: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a wrong `--url`: it is read up to a limit, whatever it is, and one clear error follows."""
    monkeypatch.setattr("bundlekeel.cli.client.MOST_BYTES", 8 << 20, raising=False)

    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if command == "status" else 200)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with serving(Stranger) as port:
        result = CliRunner().invoke(APP, [command, "--url", f"http://127.0.0.1:{port}"])
    assert result.exit_code == 3 and message in result.stderr, (repr(result.exception), result.stderr)


def test_s19_the_check_of_a_journal_tells_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = list[str]()
    monkeypatch.setattr(ProgressLine, "tell", lambda _line, text: output.append(text))
    path, head, lines = tmp_path / "journal.jsonl", GENESIS, list[bytes]()
    for number in range(2500):
        line, head = seal({"n": number}, head)
        lines.append(line + b"\n")
    path.write_bytes(b"".join(lines))
    assert CliRunner().invoke(APP, ["journal", "verify", str(path)]).exit_code == 0
    assert [text.removeprefix(f"{path}: ") for text in output] == [
        "0 lines read",
        "1,000 lines read",
        "2,000 lines read",
    ]
