"""The journal on disk: nothing recorded is lost, a torn tail is set aside, a full disk stops nothing."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path

import pytest

from bundlekeel.model.errors import ConfigError
from bundlekeel.records.chain import ChainVerifier
from bundlekeel.records.journal import FileJournal
from bundlekeel.records.metrics import PrometheusTelemetry


def journal(path: Path | None, **limits: int) -> tuple[FileJournal, PrometheusTelemetry]:
    """A journal and the telemetry it counts in."""
    telemetry = PrometheusTelemetry()
    return FileJournal(path, telemetry=telemetry, **limits), telemetry


def lines(path: Path) -> list[dict[str, object]]:
    """Every record of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_records_are_readable_lines_and_survive_a_restart(tmp_path: Path) -> None:
    """One JSON object a line, read back by the next process."""
    path = tmp_path / "j" / "journal.jsonl"
    first, _ = journal(path)
    first.append({"kind": "cycle", "n": 1})
    first.append({"kind": "move", "n": 2})
    first.close()
    assert [item["n"] for item in lines(path)] == [1, 2]
    second, _ = journal(path)
    assert [item["n"] for item in second.tail(10)] == [1, 2]
    assert [item["n"] for item in second.tail(10, kind="move")] == [2]
    second.close()


RECORD = b'{"kind":"move","bundle":"t/ns/0x0_0x1"}\n'


@pytest.mark.parametrize("cut", range(1, len(RECORD)))
def test_a11_torn_journal(tmp_path: Path, cut: int) -> None:
    """Whatever part of the last record reached the disk, the others stay and new ones can be read."""
    path = tmp_path / "journal.jsonl"
    path.write_bytes(RECORD * 2 + RECORD[:cut])
    again, telemetry = journal(path)
    again.append({"kind": "cycle", "n": 3})
    again.close()
    assert [item["kind"] for item in lines(path)] == ["move", "move", "cycle"]
    assert (tmp_path / "journal.jsonl.torn").read_bytes().startswith(RECORD[:cut])
    assert b"journal_torn_records_total 1.0" in telemetry.render("text/plain")[0]


def test_rotation_keeps_the_files_asked_for(tmp_path: Path) -> None:
    """A full file moves on to .1, older ones to .2, and no more than `backups` stay."""
    path = tmp_path / "journal.jsonl"
    full, _ = journal(path, max_bytes=200, backups=2)
    for number in range(40):
        full.append({"kind": "cycle", "n": number, "pad": "x" * 50})
    full.close()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["journal.jsonl", "journal.jsonl.1", "journal.jsonl.2"]
    newest = [
        item["n"] for name in ("journal.jsonl.2", "journal.jsonl.1", "journal.jsonl") for item in lines(tmp_path / name)
    ]
    assert newest == sorted(newest, key=int) and newest[-1] == 39


def test_full_disk_is_counted_and_stops_nothing() -> None:
    full, telemetry = journal(Path("/dev/full"))
    full.append({"kind": "cycle", "n": 1})
    assert full.tail(1)[0]["n"] == 1
    assert b"journal_errors_total 1.0" in telemetry.render("text/plain")[0]


def test_path_that_cannot_be_made_is_counted(tmp_path: Path) -> None:
    """A directory that cannot be created costs the file, not the sidecar."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    broken, telemetry = journal(tmp_path / "file" / "journal.jsonl")
    broken.append({"kind": "cycle", "n": 1})
    broken.close()
    assert broken.tail(5) == [{"kind": "cycle", "n": 1}]
    assert b"journal_errors_total 0.0" not in telemetry.render("text/plain")[0]


def test_memory_only() -> None:
    """Without a path nothing is written anywhere."""
    file_journal, _ = journal(None)
    file_journal.append({"kind": "move", "n": 1})
    file_journal.close()
    assert file_journal.tail(1) == [{"kind": "move", "n": 1}]
    assert file_journal.tail(0) == []


def test_only_the_end_of_a_large_file_is_read_back(tmp_path: Path) -> None:
    """A file may be larger than our memory limit; its newest records are known all the same, its torn tail is cut."""
    path = tmp_path / "journal.jsonl"
    record = {"kind": "cycle", "pad": "x" * 4000}
    with path.open("w", encoding="utf-8") as stream:
        for number in range(3000):
            stream.write(json.dumps(record | {"n": number}) + "\n")
        stream.write('{"kind": "mo')
    size = path.stat().st_size
    again, telemetry = journal(path)
    newest = [item["n"] for item in again.tail(5000)]
    assert newest[-1] == 2999 and newest == list(range(newest[0], 3000)) and len(newest) > 900
    assert path.stat().st_size == size - len('{"kind": "mo')
    assert b"journal_torn_records_total 1.0" in telemetry.render("text/plain")[0]
    again.close()


def test_a_rotation_that_fails_costs_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    really = os.replace

    def refused(source: Path, target: Path) -> None:
        if source == path:
            raise PermissionError(errno.EPERM, "not permitted")
        really(source, target)

    for number, text in ((1, "older"), (2, "oldest")):
        path.with_name(f"journal.jsonl.{number}").write_text(text, encoding="utf-8")
    full, telemetry = journal(path, max_bytes=200, backups=4)
    with monkeypatch.context() as faulty:
        faulty.setattr(os, "replace", refused)
        for number in range(10):
            full.append({"kind": "cycle", "n": number})
    assert [item["n"] for item in lines(path)] == list(range(10))
    assert b"journal_errors_total 0.0" not in telemetry.render("text/plain")[0]
    full.append({"kind": "cycle", "n": 10})
    full.close()
    assert [item["n"] for item in lines(path)] == [10]
    assert [item["n"] for item in lines(tmp_path / "journal.jsonl.1")] == list(range(10))
    left = [path.with_name(f"journal.jsonl.{number}").read_text(encoding="utf-8") for number in (2, 3)]
    assert left == ["older", "oldest"]


def test_a_character_that_is_none_costs_no_record(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    file_journal, telemetry = journal(path)
    file_journal.append({"kind": "move", "error": "a\ud800b", "deep": [{"\udfff": 1.5}]})
    file_journal.close()
    (read,) = lines(path)
    assert {name: read[name] for name in ("kind", "error", "deep")} == file_journal.tail(1)[0]
    assert file_journal.tail(1) == [{"kind": "move", "error": "a\ufffdb", "deep": [{"\ufffd": 1.5}]}]
    assert b"journal_errors_total 0.0" in telemetry.render("text/plain")[0]


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    """Two processes would break the hash chain; the file is locked also after a rotation, and free after the end."""
    path = tmp_path / "journal.jsonl"
    first, _ = journal(path, max_bytes=200, backups=9)
    for number in range(5):
        with pytest.raises(ConfigError, match=r"journal\.path.*in use by another process"):
            journal(path)
        first.append({"kind": "cycle", "n": number})
    assert (tmp_path / "journal.jsonl.1").exists()
    first.close()
    second, _ = journal(path)
    second.append({"kind": "cycle", "n": 5})
    second.close()
    verifier = ChainVerifier()
    for file in sorted(tmp_path.glob("journal.jsonl.*"), reverse=True):
        assert verifier.read(file.name, file.read_bytes().splitlines(keepends=True))
    assert verifier.read(path.name, path.read_bytes().splitlines(keepends=True))
    assert verifier.result().lines == 6


def test_a_second_writer_amid_a_rotation_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It opened the file, which is renamed and given free before it is locked: it must not write into `NAME.1`."""
    path = tmp_path / "journal.jsonl"
    first, _ = journal(path, max_bytes=100)
    first.append({"kind": "cycle", "n": 0})
    really, late = fcntl.flock, []

    def locked(fd: int, operation: int) -> None:
        if not late:
            late.append(fd)
            first.append({"kind": "cycle", "n": 1})
        really(fd, operation)

    monkeypatch.setattr(fcntl, "flock", locked)
    with pytest.raises(ConfigError, match="in use"):
        journal(path)
    assert late and [item["n"] for item in lines(path)] == [1]
    first.close()


def test_the_folder_is_synced_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose name is not on the disk is lost with the power: a rotated one, and that of the end."""
    synced: list[str] = []
    really = os.fsync

    def noted(fd: int) -> None:
        really(fd)
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)

    monkeypatch.setattr(os, "fsync", noted)
    path = tmp_path / "journal.jsonl"
    file_journal, _ = journal(path, max_bytes=100)
    file_journal.append({"kind": "cycle", "n": 1})
    assert synced == []
    file_journal.append({"kind": "cycle", "n": 2})
    assert synced == ["journal.jsonl.1", tmp_path.name]
    file_journal.close()
    assert synced[2:] == ["journal.jsonl", tmp_path.name]


def test_records_of_a_time_are_read_from_the_files_where_memory_does_not_go_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    written, _ = journal(path, max_bytes=300_000, backups=1)
    for number in range(1, 3001):
        written.append({"kind": "cycle", "wall_ms": number})
    assert path.with_name("journal.jsonl.1").exists()
    assert len(written.tail(10_000)) == 2000
    assert [record["wall_ms"] for record in written.since(2990)] == list(range(2990, 3001))
    assert [record["wall_ms"] for record in written.since(900)] == list(range(900, 3001))
    in_memory, _ = journal(None)
    in_memory.append({"kind": "cycle", "wall_ms": 5})
    assert in_memory.since(1) == [{"kind": "cycle", "wall_ms": 5}]
    assert in_memory.since(6) == []


def test_a_cycle_that_was_written_late_hides_nothing_that_came_during_it(tmp_path: Path) -> None:
    """It has the time of its picture. Reading the files ended there; what came during that cycle was left out."""
    written, _ = journal(tmp_path / "journal.jsonl")
    times = [800_010, 799_990, *range(800_020, 802_020)]
    for wall_ms in times:
        written.append({"kind": "cycle", "wall_ms": wall_ms})
    assert [record["wall_ms"] for record in written.since(800_000)] == [800_010, *times[2:]]
    assert written.since(900_000) == []
