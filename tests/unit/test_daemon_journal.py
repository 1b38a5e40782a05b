"""The journal on disk: nothing recorded is lost, a torn tail is set aside, a full disk stops nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bundlekeel.adapters.files import FileJournal
from bundlekeel.adapters.metrics import PrometheusTelemetry


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
    """Balancing goes on without the record, and the newest records stay in memory."""
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
    held, _ = journal(None)
    held.append({"kind": "move", "n": 1})
    held.close()
    assert held.tail(1) == [{"kind": "move", "n": 1}]
    assert held.tail(0) == []


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
