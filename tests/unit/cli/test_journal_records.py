"""The views of records, asked of a whole sidecar that wrote every kind of them, or none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import Result
from pydantic import TypeAdapter
from typer.testing import CliRunner

from bundlekeel.api.audit import Audit, AuditTrail
from bundlekeel.api.service import Service
from bundlekeel.cli.units import age
from bundlekeel.model.errors import AdminRefused
from bundlekeel.model.findings import Finding, finding_records
from bundlekeel.planning.guard.external_moves import ExternalMove
from bundlekeel.planning.splitting.algorithms import SplitAlgorithm, SplitOptions
from bundlekeel.recalibration.adopting.watcher import Calibration
from bundlekeel.records.chain import GENESIS, MEMBERS, seal
from bundlekeel.requests.reload import Reload
from bundlekeel.settings.credentials import Principal
from bundlekeel.views.journal import RECORDS
from tests.support.apps import make_app
from tests.support.fake_wiring import FakeWiring
from tests.support.page_world import PageCluster, PageSidecar, Served
from tests.support.quota_world import QuotaCluster, QuotaSidecar
from tests.support.world import BROKERS, EAGER
from tests.unit.requests.test_reload import Running

A, B = "broker-1.pulsar:8080", "broker-2.pulsar:8080"
TOPIC = "persistent://shop/orders/stock"
KINDS = tuple(RECORDS)
NEVER = ("--until", "2001-01-01")
WHO = {"reason": "it is hot", "by": "ann"}
JOURNALS = [["journal"], *(["journal", "--kind", kind] for kind in KINDS)]
OTHERS = [["verdicts"], ["summary", "--since", "2000-01-01"]]


class _Comparing(PageSidecar):
    """With a strategy that plans along."""

    settings: ClassVar = {"shadow.strategies": ["threshold"]}


@dataclass(kw_only=True)
class Recorder(Served):
    """A sidecar over fakes that moved, split, paused, limited, adopted and was refused."""

    def service(self) -> Service:
        """The sidecar's face."""
        loads = {A: [("shop/orders", share) for share in (0.2, 0.15, 0.1, 0.05)], B: [("shop/payments", 0.01)]}
        limits = {"shop": {"members": ("t:shop",), "publish_messages": 30}}
        quotas = {"enforcer": "policies", "groups": limits}
        self.cluster = PageCluster(loads, {TOPIC: 90.0})
        self.sidecar = _Comparing(self.cluster, mode="act", params=EAGER, pace=0.0, quotas=quotas)
        return self.sidecar.service

    async def _listen(self) -> None:
        await super()._listen()
        result, journal = self.sidecar, self.sidecar.journal
        await result.lead()
        await result.turn()
        self.cluster.clock.offset += 200
        self.cluster.publish()
        await result.leadership.turn()
        await result.shared_state.refresh()
        await result.turn()
        assert result.shadow_strategies is not None
        await result.shadow_strategies.play()
        thresholds: Calibration = result.calibration
        await thresholds.check()
        await thresholds.adopt(digest=None, force=True, **WHO)
        bundle = next(name for name in self.cluster.shares if name.startswith("shop/orders/"))
        halves = SplitOptions(algorithm=SplitAlgorithm.RANGE)
        await result.service.requests.split(bundle, options=halves, execute=True, **WHO)
        await result.executions.serve()
        await Reload(result.loaded, result.effective_parameters, journal, result.telemetry, result.clock).read()
        now = result.clock.wall_ms()
        trail = AuditTrail(record=journal.append, wall_ms=result.clock.wall_ms, boot=result.clock.boot)
        Audit(trail, unnamed=Principal("", "")).refused({"method": "POST", "path": "/api/v1/pause"}, "/pause", 403)
        journal.append(ExternalMove(bundle=bundle, source=A, target=B, at_ms=now, undone=True).record())
        stuck = Finding(
            code="StuckRelease",
            bundle=bundle,
            brokers=(A,),
            since_ms=now,
            detail="it is being released for 5 s",
            remedy="unload it",
        )
        for record in finding_records({}, {bundle: stuck}, now):
            journal.append(record)
        await result.quotas.remove("shop", **WHO)
        await result.turn()


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    """Running."""
    with Recorder() as served:
        yield served


def ask(recorder: Recorder, *command: str, width: int = 400) -> Result:
    """One command."""
    app = make_app(FakeWiring)
    return CliRunner().invoke(app, [*command, "--url", recorder.url], env={"COLUMNS": str(width)})


@pytest.mark.parametrize("command", [*JOURNALS, *OTHERS, ["why", A]], ids=" ".join)
@pytest.mark.parametrize("width", [80, 120, 400])
@pytest.mark.parametrize("form", ["table", "wide"])
def test_every_kind_of_record_is_shown(recorder: Recorder, command: list[str], width: int, form: str) -> None:
    """In a table that fits the terminal; `journal` shows each kind that there is."""
    result = ask(recorder, *command, "-o", form, width=width)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= width
    rows = json.loads(ask(recorder, *command, "-o", "json").stdout)
    assert rows
    if command[0] == "journal":
        assert {row["kind"] for row in rows} == set(command[2:] or KINDS)
        assert width < 400 or all(kind in result.stdout for kind in command[2:] or KINDS)


@pytest.mark.parametrize("command", [*JOURNALS, *OTHERS], ids=" ".join)
@pytest.mark.parametrize("form", ["table", "wide", "json"])
def test_that_nothing_is_recorded_is_said(recorder: Recorder, command: list[str], form: str) -> None:
    """It succeeds, and a table of nothing says so."""
    result = ask(recorder, *command, *NEVER, "-o", form)
    assert result.exit_code == 0, result.output
    if form == "json":
        assert not json.loads(result.stdout) or command[0] == "summary"
    else:
        assert "nothing" in result.stdout


@pytest.mark.parametrize("width", [80, 200])
def test_a_move_that_landed_is_told_once(recorder: Recorder, width: int) -> None:
    command = ["journal", "--kind", "move"]
    moves = json.loads(ask(recorder, *command, "-o", "json").stdout)
    output = ask(recorder, *command, width=width).stdout
    assert "done, owned by" in moves[0]["sentence"] and {move["outcome"] for move in moves} == {"done"}
    assert "owned by" not in output
    assert output.count(moves[0]["bundle"].rpartition("/")[2]) == 1


def test_a_cycle_took_as_long_as_all_its_parts(recorder: Recorder) -> None:
    """The record has the seconds of each part and their total."""
    (cycle,) = json.loads(ask(recorder, "journal", "--kind", "cycle", "--limit", "1", "-o", "json").stdout)
    assert f" {age(cycle['seconds']['total'])} " in ask(recorder, "journal", "--kind", "cycle", "--limit", "1").stdout


async def test_the_fields_of_each_kind_are_those_that_are_described(recorder: Recorder, tmp_path: Path) -> None:
    """No record has another one, and each is of a record: what the reference lists is what there is."""
    quotas = QuotaSidecar(QuotaCluster(), enforcer="native")
    await quotas.lead()
    quotas.quota_admin.fail("attach", AdminRefused("409 concurrent modification", status=409))
    await quotas.turn()
    await quotas.service.requests.drain(BROKERS[0], dry_run=False, **WHO)
    await quotas.turn()
    settings = Running(tmp_path / "c.yaml")
    await settings.read("strategy: [")
    rows = json.loads(ask(recorder, "journal", "--limit", "10000", "-o", "json").stdout)
    rows += [*quotas.journal.since(0), *settings.journal.since(0)]
    written = {kind: {field for row in rows if row["kind"] == kind for field in row} for kind in KINDS}
    assert written == {kind: {field.name for field in fields(record)} for kind, record in RECORDS.items()}
    for row in rows:
        TypeAdapter(RECORDS[row["kind"]]).validate_json(json.dumps(row), strict=True)
    line, _ = seal({"kind": "move"}, GENESIS, torn=1, lost=1)
    assert [*json.loads(line)] == ["kind", *MEMBERS]


def test_a_request_that_was_refused_is_named_once(recorder: Recorder) -> None:
    output = ask(recorder, "journal", "--kind", "audit").stdout
    assert output.count("/pause") == 1 and "answered 403" in output
