"""The fault checklist row by row, as far as fakes prove it; docs/reference/failure-tests.md lists all rows.

Each row has one test named after it (`test_a1_...`, checked by tests/unit/dev/test_row_names.py). Rows that need real
processes are tested in tests/chaos.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bundlekeel.leader.execution.executor import TermExecutor
from bundlekeel.leader.execution.intents import MoveOutcome, MoveRequest
from bundlekeel.leader.execution.move import ExecutorLimits, LeaderTerm, MovePorts
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import LeadershipLost
from bundlekeel.model.members import Member
from bundlekeel.pulsar.admin import AdminOptions
from tests.support.admin_kit import Kit, redirect
from tests.support.chaos.history import History
from tests.support.chaos.judging import judge
from tests.support.chaos.schedule import Fault, Schedule, What
from tests.support.chaos_run import SECONDS, history_of
from tests.support.chaos_world import SESSION_SECONDS
from tests.support.executor_bench import Bench, fleet
from tests.support.http_brokers import Answer, HttpBrokers, Script, answer
from tests.support.memory_coordination import MemoryCoordination, MemoryStore
from tests.support.memory_source import MemoryMetadata, RealClock
from tests.support.world import FakeCluster, FakeSidecar, TestClock

ROOT = Path(__file__).resolve().parents[4]
BUNDLE, OTHER = "t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000"


def played(*faults: Fault) -> History:
    with capture_logs():
        history = history_of(Schedule(seed=11, seconds=SECONDS, faults=faults))
    assert judge(history) == []
    assert [item for item in history.attempts if item.verb == "unload"]
    return history


def aimed(what: What, seconds: float = 0.0, at: float = 1.0) -> Fault:
    """A fault that hits the leader between an intent and its call."""
    return Fault(at=at, what=what, target="A", seconds=seconds, aimed=True)


def test_a_leader_whose_session_ends_over_fakes() -> None:
    history = played(aimed(What.EXPIRE_SIDECAR))
    first, second = history.terms[:2]
    assert first.ended is not None
    assert second.begun - first.ended <= SESSION_SECONDS + 1.0


def test_a2_ensemble_frozen_or_gone() -> None:
    history = played(Fault(at=4.0, what=What.STOP_STORE, target="zookeeper", seconds=9.0))
    assert history.terms[-1].ended is None or len(history.terms) > 1
    started = [item.begun for item in history.intents]
    frozen_at = min(item.begun for item in history.terms) + 2.0 + 4.0
    assert not [at for at in started if frozen_at + 1.0 < at < frozen_at + 8.0]
    assert max(started) > frozen_at + 9.0


def test_a3_leader_paused_mid_action() -> None:
    """Stopped between intent and call while another one wins: one call a bundle and epoch, and none of the old one."""
    history = played(aimed(What.STOP_SIDECAR, 9.0))
    assert len(history.terms) >= 2
    stop = history.stops[0]
    late = [item for item in history.attempts if item.member == stop.member and item.sent > stop.until + 1.0]
    assert all(any(t.member == stop.member and t.begun <= item.sent for t in history.terms[1:]) for item in late)


def test_a_leader_cut_off_over_fakes() -> None:
    """One sidecar is cut off from the store for long, the other one takes over: no two of them ever act at once."""
    history = played(aimed(What.CUT_SIDECAR, 12.0))
    assert len({term.member for term in history.terms}) == 2
    for one, two in zip(history.terms, history.terms[1:], strict=False):
        assert one.ended is not None
        assert one.ended <= two.begun


# --- rows A5 and A6: the admin API, over real sockets ---------------------------------------------------------


class HttpBench:
    """An executor whose brokers are behind real HTTP; the second one owns two bundles."""

    def __init__(self, brokers: HttpBrokers) -> None:
        self.brokers = brokers
        self.kit = Kit(brokers, AdminOptions(read_timeout=0.5, query_timeout=0.5))
        brokers.model.add(BUNDLE, brokers.ids[1], "persistent://t/n/one")
        brokers.model.add(OTHER, brokers.ids[1], "persistent://t/n/two")
        self.coordination = MemoryCoordination(MemoryStore())
        metadata = MemoryMetadata()
        metadata.leader = brokers.ids[0]
        ports = MovePorts(
            admin=self.kit.admin,
            commands=self.kit.admin,
            coordination=self.coordination,
            ownership=brokers.model,
            metadata=metadata,
            clock=RealClock(),
        )
        limits = ExecutorLimits(confirm_seconds=0.3, poll_first_seconds=0.01)
        self.executor = TermExecutor(ports, LeaderTerm(epoch=1, member="m", permit=lambda: None), limits=limits)

    async def move(self, bundle: str = BUNDLE) -> MoveOutcome:
        ids = self.brokers.ids
        return await self.executor.move(MoveRequest(bundle=bundle, source=ids[1], destination=ids[2]))

    def unloads(self) -> int:
        """Unload requests that reached a broker."""
        return sum(request.path.endswith("/unload") for request in self.brokers.seen)

    async def check_goes_on(self) -> None:
        """Nothing is left behind, and the next move is made."""
        assert await self.coordination.read_tree("intents") == []
        assert (await self.move(OTHER)).outcome == "done"


@pytest.fixture
async def bench() -> AsyncIterator[HttpBench]:
    """Three brokers; the first one is their leader, and gets every unload first."""
    async with HttpBrokers().serve() as brokers:
        bench = HttpBench(brokers)
        await bench.coordination.start()
        assert await bench.coordination.campaign(Member(id="m")) == 1
        yield bench
        await bench.kit.admin.close()


@pytest.mark.parametrize("kind", ["to itself", "ping-pong", "foreign host", "no target"])
async def test_a5_redirects(bench: HttpBench, kind: str) -> None:
    ids, there = bench.brokers.ids, redirect("http://192.0.2.1:8080")
    scripts = {
        "to itself": (redirect(f"http://{ids[0]}"), None),
        "ping-pong": (redirect(f"http://{ids[2]}"), redirect(f"http://{ids[0]}")),
        "foreign host": (there, None),
        "no target": (answer(307), None),
    }[kind]
    bench.brokers.script(0, scripts[0])
    if scripts[1] is not None:
        bench.brokers.script(2, scripts[1])
    outcome = await bench.move()
    assert (outcome.outcome, outcome.code) == ("unknown", Code.NO_ANSWER)
    assert bench.unloads() == (2 if kind == "ping-pong" else 1)
    await bench.check_goes_on()


@pytest.mark.parametrize(
    ("script", "outcome", "code"),
    [
        (answer(500, reason="chaos"), "unknown", Code.NO_ANSWER),
        (answer(503), "unknown", Code.NO_ANSWER),
        (answer(408), "unknown", Code.NO_ANSWER),
        (answer(429), "unknown", Code.NO_ANSWER),
        (answer(499), "unknown", Code.NO_ANSWER),
        (answer(409), "refused", Code.ADMIN_REFUSED),
        (answer(412), "refused", Code.ADMIN_REFUSED),
        (answer(404), "refused", Code.ADMIN_REFUSED),
        (answer(401), "refused", Code.ADMIN_UNAUTHORIZED),
        (lambda _: Answer(hang=True), "unknown", Code.NO_ANSWER),
        (lambda _: Answer(reset=True), "unknown", Code.NO_ANSWER),
    ],
    ids=["500", "503", "408", "429", "499", "409", "412", "404", "401", "hangs", "resets"],
)
async def test_a6_admin_failures(bench: HttpBench, script: Script, outcome: str, code: Code) -> None:
    """Refused or unknown, asked once, its intent gone; the next move is made (S.15: a proxy may answer 408, 429 and 499
    after it has passed the request on)."""
    bench.brokers.script(0, script)
    move_outcome = await bench.move()
    assert (move_outcome.outcome, move_outcome.code) == (outcome, code)
    assert bench.unloads() == 1
    await bench.check_goes_on()


# --- the rest -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", range(6))
async def test_a_permit_lost_amid_a_batch_over_fakes(calls: int) -> None:
    bench = await Bench().lead()
    requests = fleet(bench)

    def permit() -> None:
        if bench.unloads() >= calls:
            raise LeadershipLost("deadline")

    bench.permit = permit  # type: ignore[assignment]
    bench.executor = bench.build()
    outcomes = await bench.execute(requests)
    assert len(outcomes) == len(requests) == len(bench.heard)
    assert bench.unloads() == calls
    lost = [item for item in outcomes if item.code == Code.NOT_LEADER]
    assert len(lost) == len(requests) - calls
    assert {item.outcome for item in lost} == {"refused"}
    assert len(await bench.intents()) <= bench.executor._limits.max_in_flight


class SteppedWall(TestClock):
    """Wall clock that a test sets; the boot clock does not change."""

    step_ms = 0

    def wall_ms(self) -> int:
        """The wall clock, set forward or back."""
        return super().wall_ms() + self.step_ms


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_stepped_wall_clock_over_fakes(hours: int) -> None:
    """An hour forward or back: the lease and its end are the same, and so is a move's length."""
    clock = SteppedWall()
    cluster = FakeCluster(clock=clock)
    sidecar = await FakeSidecar(cluster).lead()
    before = sidecar.leadership.lease_remaining
    clock.step_ms = hours * 3_600_000
    sidecar.leadership.permit(1)
    assert sidecar.leadership.lease_remaining == pytest.approx(before, abs=1.0)
    cluster.publish()
    outcomes = (await sidecar.cycle.turn()).outcomes
    assert {item.outcome for item in outcomes} == {"done"}
    assert all(0.0 <= item.seconds < 60.0 for item in outcomes)
    clock.offset = sidecar.coordination.session_seconds
    with pytest.raises(LeadershipLost):
        sidecar.leadership.permit(1)


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from tests.support.world import FakeCluster, FakeSidecar

async def main():
    path = Path(sys.argv[1])
    sidecar = await FakeSidecar(FakeCluster(), journal=path).lead()
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, resource.RLIM_INFINITY))
    first = await sidecar.cycle.turn()
    for _ in range(3):
        await sidecar.cycle.turn()
    assert {item.outcome for item in first.outcomes} == {"done"}, first
    failed = sidecar.metric("journal_errors_total")
    assert float(failed.rpartition(" ")[2]) >= 4, failed
    assert len(sidecar.journal.tail(1000)) >= 4 + len(first.outcomes)
    moved = len(sidecar.moves())
    # There is room again: what is written now can be read by the next process.
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    sidecar.journal.append({"kind": "cycle", "n": "after"})
    sidecar.journal.close()
    again = await FakeSidecar(FakeCluster(), journal=path).lead()
    assert again.journal.tail(1)[0]["n"] == "after", again.journal.tail(1)
    print("moved", moved)

asyncio.run(main())
"""


def test_a_full_disk(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "journal.jsonl")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "moved" in result.stdout


async def test_a16_dry_run_changes_nothing() -> None:
    """In every mode below `act` no call that could change a broker is made; the plan is there all the same."""
    for mode in ("observe", "recommend"):
        sidecar = await FakeSidecar(FakeCluster(), mode=mode).lead()
        report = await sidecar.cycle.turn()
        assert report.plan is not None
        assert report.plan.moves
        assert {call[0] for call in sidecar.admin.calls} <= READS


READS = {"runtime_configuration", "dynamic_configuration", "topics_of_bundle", "topic_loads", "bundle_loads", "signs"}


async def test_a18_brokers_that_shed_themselves() -> None:
    """`act` is refused by its name until they stop."""
    cluster = FakeCluster(shedding=True)
    sidecar = await FakeSidecar(cluster).lead()
    report = await sidecar.cycle.turn()
    assert report.obstacle is not None
    assert report.obstacle.code is Code.BROKERS_SHED_THEMSELVES
    cluster.model.dynamic["loadBalancerSheddingEnabled"] = "false"
    await asyncio.sleep(0)
    assert (await sidecar.cycle.turn()).outcomes
