"""The journal's hash chain: a check reports the first line that was changed, removed or added."""

from __future__ import annotations

import hashlib
import io
import json
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from bundlekeel.cli.journal import follow_chain, sort_rotated
from bundlekeel.records.chain import GENESIS, ChainVerification, ChainVerifier, is_intact, seal, seal_of
from bundlekeel.records.journal import FileJournal
from bundlekeel.records.metrics import PrometheusTelemetry
from tests.support.apps import make_app
from tests.support.fake_wiring import FakeWiring


def journal(path: Path, **limits: int) -> FileJournal:
    """A journal on disk."""
    return FileJournal(path, telemetry=PrometheusTelemetry(), **limits)


def written(path: Path, count: int = 5, **limits: int) -> list[bytes]:
    file_journal = journal(path, **limits)
    for number in range(count):
        file_journal.append({"kind": "move", "n": number, "sentence": "a → b"})
    file_journal.close()
    return path.read_bytes().splitlines(keepends=True)


def verified(*files: list[bytes]) -> ChainVerification:
    verifier = ChainVerifier()
    for number, lines in enumerate(files):
        if not verifier.read(f"file-{number}", lines):
            break
    return verifier.result()


def test_each_line_names_the_one_before_and_can_be_checked_with_sha256sum(tmp_path: Path) -> None:
    """The rule in the docs is the rule in the file: SHA-256 of the bytes without the last member."""
    lines = written(tmp_path / "j.jsonl")
    before = GENESIS
    for line in lines:
        parsed = json.loads(line)
        plain = line.rstrip(b"\n").replace(b',"hash":"' + parsed["hash"].encode() + b'"', b"")
        assert hashlib.sha256(plain).hexdigest() == parsed["hash"] and parsed["prev"] == before
        before = parsed["hash"]
    verification = verified(lines)
    assert (
        verification.broken is None and verification.lines == 5 and verification.head == before and verification.whole
    )


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_changed_byte_is_found(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whichever byte of whichever line becomes another, that line or the one after it is named."""
    lines = written(tmp_path_factory.mktemp("chain") / "j.jsonl")
    at = data.draw(st.integers(0, len(lines) - 1))
    line = bytearray(lines[at])
    where = data.draw(st.integers(0, len(line) - 2))
    line[where] ^= data.draw(st.integers(1, 255))
    changed = b"".join([*lines[:at], bytes(line), *lines[at + 1 :]])
    verification = verified(list(io.BytesIO(changed)))
    made_two = line[where] == ord("\n")
    assert verification.broken is not None and at + 1 <= verification.broken.line <= at + 2 + made_two


@pytest.mark.parametrize("at", range(4))
def test_lines_taken_out_or_moved_are_found(tmp_path: Path, at: int) -> None:
    """A missing line shows at the next one, an exchanged pair at its first; a line of one's own does not fit either."""
    lines = written(tmp_path / "j.jsonl")
    without = verified([*lines[:at], *lines[at + 1 :]])
    assert (without.broken.line if without.broken else 1) == (at + 1 if at else 1)
    assert at or not without.whole, "without the first line it does not begin at the beginning"
    swapped = verified([*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]])
    assert swapped.broken is not None
    forged = seal({"kind": "move", "n": 99}, GENESIS)[0] + b"\n"
    added = verified([*lines[: at + 1], forged, *lines[at + 1 :]])
    assert added.broken is not None and added.broken.line == at + 2
    bare = verified([*lines[: at + 1], b'{"kind":"move"}\n', *lines[at + 1 :]])
    assert bare.broken is not None and "no hash" in bare.broken.why


def test_the_chain_goes_on_over_rotation_and_restart(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    for _ in range(3):
        written(path, 10, max_bytes=1500, backups=20)
    files = sort_rotated(list(tmp_path.iterdir()))
    assert len(files) > 3 and files[-1] == path
    contents = [file.read_bytes().splitlines(keepends=True) for file in files]
    verification = verified(*contents)
    assert verification.broken is None and verification.lines == 30 and verification.whole
    alone = verified(contents[-1])
    assert alone.broken is None and not alone.whole
    assert verified(contents[0], *contents[2:]).broken is not None, "a whole file is missing"


def test_a_stop_amid_a_rotation_goes_on_from_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    first = written(path)
    path.rename(tmp_path / "j.jsonl.1")
    second = written(path)
    assert verified(first, second).broken is None and not verified(second).whole


def test_a_torn_last_line_is_tolerated_and_marked(tmp_path: Path) -> None:
    """Killed while writing: the rest of the line is set aside, the next line says so, the chain holds."""
    path = tmp_path / "j.jsonl"
    whole = b"".join(written(path))
    for cut in range(len(whole) - 150, len(whole)):
        path.write_bytes(whole[:cut])
        lines = path.read_bytes().splitlines(keepends=True)
        assert verified(lines).broken is None and verified(lines).unfinished
        again = written(path, 1)
        verification = verified(again)
        assert verification.broken is None and verification.torn == 1 and not verification.unfinished
        assert json.loads(again[-1])["torn"] > 0
        file_journal = journal(path)
        assert not {"prev", "hash", "torn"} & set(file_journal.tail(1)[0]), (
            "the chain's members are not part of the record"
        )
        file_journal.close()
    later = [b"torn", *written(path, 1)]
    assert verified([b"torn"], later).broken is not None, "an unfinished line is tolerated at the very end only"


def test_a_full_disk_leaves_no_half_line_and_the_gap_is_told(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    file_journal = journal(path)
    file_journal.append({"kind": "move", "n": 0})
    size = path.stat().st_size
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, old[1]))
    try:
        file_journal.append({"kind": "move", "n": 1})
        file_journal.append({"kind": "move", "n": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, before)
    assert path.stat().st_size == size
    file_journal.append({"kind": "move", "n": 3})
    file_journal.close()
    lines = path.read_bytes().splitlines(keepends=True)
    verification = verified(lines)
    assert (
        verification.broken is None and verification.lost == 2 and [json.loads(line)["n"] for line in lines] == [0, 3]
    )


@given(
    record=st.dictionaries(
        st.text(max_size=5),
        st.one_of(st.text(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False), st.none(), st.booleans()),
        min_size=1,
    )
)
def test_any_record_can_be_sealed(record: dict[str, Any]) -> None:
    """Quotes, newlines and names of the chain's own members inside a record do not confuse it."""
    line, digest = seal({"kind": "move"} | record, GENESIS)
    assert b"\n" not in line and is_intact(line) and seal_of(line) == (GENESIS, digest)
    assert json.loads(line)["hash"] == digest


def invoke(*arguments: str) -> Any:
    """Run the command line."""
    return CliRunner().invoke(make_app(FakeWiring), ["journal", "verify", *arguments])


def test_a_file_without_any_hash_is_no_journal(tmp_path: Path) -> None:
    """The first line is named; a file with one unfinished line proves nothing."""
    path = tmp_path / "any.txt"
    path.write_text("a\nb\n")
    result = invoke(str(path))
    assert result.exit_code == 1 and f"broken: {path}:1: it has no hash" in result.stdout.replace("\n", "")
    path.write_text("a")
    assert invoke(str(path)).stdout == "the only line is incomplete: nothing could be verified\n"
    written(tmp_path / "j.jsonl", 1)
    assert "ok: 1 line in 1 file, the hash chain" in invoke(str(tmp_path / "j.jsonl")).stdout


def test_an_emptied_file_is_not_ok(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.touch()
    answer = follow_chain([path], "")
    assert answer["empty"] and answer["why"].startswith(f"nothing is recorded in {path}: ")
    written(tmp_path / "j.jsonl.1")
    answer = follow_chain(sort_rotated([path, tmp_path / "j.jsonl.1"]), "")
    assert (answer["empty"], answer["why"]) == (False, "")


def test_the_command_names_the_first_broken_line(tmp_path: Path) -> None:
    """`bundlekeel journal verify`: 0 and the newest hash, or 1 and file:line."""
    path = tmp_path / "j.jsonl"
    lines = written(path)
    good = invoke(str(path))
    head = json.loads(lines[-1])["hash"]
    assert good.exit_code == 0 and head in good.output
    path.write_bytes(b"".join(lines).replace(b'"n":2', b'"n":7'))
    bad = invoke(str(path))
    assert bad.exit_code == 1 and f"{path}:3" in bad.output
    path.write_bytes(b"".join(lines[:3]))
    assert invoke(str(path)).exit_code == 0, "the chain alone cannot know what is missing at its end"
    cut = invoke(str(path), "--head", head)
    assert cut.exit_code == 1 and "were removed" in cut.output
    short = invoke(str(path), "--head", "3f2a...")
    assert (short.exit_code, short.stderr) == (2, "error: --head '3f2a...': expected 64 hexadecimal digits\n")
    assert json.loads(invoke(str(path), "-o", "json").output)["lines"] == 3
    assert invoke(str(tmp_path / "none")).exit_code == 2


def test_without_files_those_of_the_settings_are_taken(tmp_path: Path) -> None:
    """The journal and its rotated files, oldest first."""
    config = tmp_path / "config.yaml"
    config.write_text("journal: {path: j.jsonl, max_bytes: 4096, backups: 3}\n")
    written(tmp_path / "j.jsonl", 60, max_bytes=4096, backups=3)
    result = invoke("-c", str(config), "-o", "json")
    names = [Path(name).name for name in json.loads(result.output)["files"]]
    assert result.exit_code == 0 and names == ["j.jsonl.2", "j.jsonl.1", "j.jsonl"]
    config.write_text("journal: {path: null}\n")
    assert invoke("-c", str(config)).exit_code == 2


def test_what_was_cut_off_at_the_beginning_is_told(tmp_path: Path) -> None:
    """Also by the settings, which know how many files are kept; a part of the files is one only where one says so."""
    config = tmp_path / "config.yaml"
    config.write_text("journal: {path: j.jsonl, max_bytes: 4096, backups: 1}\n")
    path = tmp_path / "j.jsonl"
    lines = written(path)
    path.write_bytes(b"".join(lines[2:]))
    for arguments in ([str(path)], ["-c", str(config)]):
        result = invoke(*arguments)
        assert result.exit_code == 1 and "beginning of the chain is missing" in result.output
        assert invoke("--part", *arguments).exit_code == 0
    path.unlink()
    written(path, 60, max_bytes=4096, backups=1)
    assert invoke("-c", str(config)).exit_code == 0, "its oldest lines were thrown away by rotation"
    assert invoke(str(path)).exit_code == 1


def test_lines_put_in_front_are_told(tmp_path: Path) -> None:
    """A line without a hash is named, also before the first line with one."""
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"kind":"move"}\n' + b"".join(written(path)))
    result = invoke(str(path))
    assert result.exit_code == 1 and f"{path}:1" in result.output.replace("\n", "")


def test_secrets_without_a_settings_file_do_not_hinder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The secrets belong to the file named with -c; the group itself reads no settings and asks no sidecar."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "store__sasl_password").write_text("s")
    monkeypatch.setenv("BUNDLEKEEL_SECRETS_DIR", str(secrets))
    config = tmp_path / "config.yaml"
    config.write_text("store: {sasl_username: bundlekeel}\njournal: {path: j.jsonl}\n")
    written(tmp_path / "j.jsonl")
    assert invoke("-c", str(config)).exit_code == 0


def test_the_answer_is_the_same_for_programs(tmp_path: Path) -> None:
    """Every member is there, whether it holds or not."""
    lines = written(tmp_path / "j.jsonl")
    good = follow_chain([tmp_path / "j.jsonl"], "")
    (tmp_path / "j.jsonl").write_bytes(b"".join(lines[1::-1]))
    assert set(follow_chain([tmp_path / "j.jsonl"], "")) == set(good)


def test_a_journal_without_a_line_is_not_called_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1: nothing is recorded, in which file, or in which folder that of the settings is not."""
    monkeypatch.delenv("BUNDLEKEEL_CONFIG", raising=False)
    path = tmp_path / "bundlekeel-journal.jsonl"
    config = tmp_path / "keel.yaml"
    config.write_text("cluster: a\nmetadata_store: zk:h:2181\n", encoding="utf-8")
    absent = CliRunner().invoke(make_app(FakeWiring), ["journal", "verify", "-c", str(config)])
    assert absent.exit_code == 1 and f"nothing is recorded in {tmp_path}: there is no file {path.name}" in absent.stderr
    path.touch()
    empty = CliRunner().invoke(make_app(FakeWiring), ["journal", "verify", "-c", str(config)])
    assert empty.exit_code == 1 and f"nothing is recorded in {path}" in empty.stdout.replace("\n", "")
    assert "broken" not in empty.stdout
