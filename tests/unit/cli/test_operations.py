"""Drains, moves by hand, pins and reviews from the command line, against a served sidecar."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from bundlekeel.cli import operation_tables, units
from bundlekeel.cli.output import TableLayout
from bundlekeel.leader.cycle.plan_responses import RefusalView
from bundlekeel.leader.state.responses import OutcomeView, TakeoverView
from bundlekeel.model.codes import Code, explain, way_out
from bundlekeel.model.errors import Conflict, Forbidden
from bundlekeel.planning.splitting.algorithms import SplitAlgorithm, SplitOptions
from bundlekeel.requests.review import ReviewView
from bundlekeel.views.picture import State
from tests.support.shop import BROKERS, BUNDLE, BUNDLES, IN_BUNDLE, NOW_MS, Shop
from tests.support.spied import Spied
from tests.unit.cli.test_channel import drawn
from tests.unit.cli.test_commands import Sidecar, failing, fails, moving, served, sidecar  # fixtures

__all__ = ["moving", "served", "sidecar"]

WHO = ["--reason", "r", "--by", "ann"]
BY = {"reason": "r", "by": "ann"}
# The first has bundles to give, the last one room for them.
PROPOSAL = "5f0c3a1be2d4977a"
FULL, ROOMY = BROKERS[0], BROKERS[2]


def refusal(code: Code, bundle: str, *, detail: str = "") -> RefusalView:
    """Return why this bundle stays."""
    return RefusalView(code=code.value, bundle=bundle, broker=FULL, detail=detail, explanation=code.explanation)


def unloaded(sidecar: Sidecar, bundle: str = BUNDLE) -> None:
    """Let a bundle have moved recently."""
    sidecar.do(sidecar.shop.service.requests.unload(bundle, execute=True, **BY))
    sidecar.do(sidecar.shop.turns())


def asked(sidecar: Sidecar) -> None:
    """Let operators have made a request of every kind."""
    requests, who = sidecar.shop.service.requests, {"reason": "disks", "by": "ann"}
    sidecar.do(requests.drain(BROKERS[1], dry_run=False, **who))
    sidecar.do(requests.cordon(FULL, **who))
    sidecar.do(requests.pin(BUNDLE, seconds=None, **who))
    sidecar.do(requests.pin(BUNDLES[2], seconds=None, **who))
    sidecar.do(requests.exclude("t:acme", seconds=60.0, **who))
    sidecar.do(requests.pause_scope("tenant:acme", seconds=None, **who))


@pytest.mark.parametrize("command", [["operations"], ["review", "list"]], ids=" ".join)
@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_reads(sidecar: Sidecar, command: list[str], output: str) -> None:
    """In every format; JSON and YAML can be read."""
    sidecar.be(review=command[0] == "review")
    if command[0] == "review":
        sidecar.run("unload", BUNDLE, "--yes", *WHO)
    else:
        asked(sidecar)
    result = sidecar.run(*command, "-o", output)
    assert result.exit_code == 0, result.output
    read: dict[str, Callable[[str], Any]] = {"json": json.loads, "yaml": yaml.safe_load}
    assert read.get(output, str.strip)(result.stdout)


def test_operations_tell_everything_that_was_asked(sidecar: Sidecar) -> None:
    """Progress and ETA of a drain, what stays and why; pins, exclusions, paused scopes."""
    asked(sidecar)
    sidecar.do(sidecar.shop.turns(2))
    text = " ".join(sidecar.run("operations").stdout.split())
    for part in (
        f"started {units.moment(NOW_MS)} by ",
        "1 moved",
        "stay: ",
        "1 Pinned",
        f"{FULL}: cordoned by ann: disks",
        f"{BUNDLE}: pinned for good by ann: disks",
        "t:acme: excluded until",
        "tenant:acme: paused until resumed by ann",
    ):
        assert part in text


def test_a_restart_is_refused_while_capacity_is_missing(sidecar: Sidecar) -> None:
    """The table has a row for each broker in both cases; the error names broker and fix."""
    result = sidecar.run("restart", "plan")
    assert result.exit_code == 0, result.output
    assert "0 of 3 brokers done" in result.stdout and all(broker in result.stdout for broker in BROKERS)
    sidecar.do(sidecar.shop.service.requests.cordon(ROOMY, **BY))
    result = sidecar.run("restart", "plan", "-o", "json")
    assert result.exit_code == 4
    assert json.loads(result.stdout)["refused"] in result.stderr
    assert "of 3 bundles of broker-1.pulsar:8080 fit on no other broker; add a broker" in result.stderr


@pytest.mark.parametrize("width", [80, 100, 160])
def test_ids_of_proposals_are_whole(width: int) -> None:
    """They are typed again to approve one; on any terminal, and whatever the reason."""
    row = ReviewView(
        id=PROPOSAL,
        kind="plan",
        title=f"plan {PROPOSAL}: 3 moves",
        by="ann",
        reason="even it out before the evening " * 4,
        at_ms=NOW_MS,
        state="proposed",
        reviewer="",
        remark="",
        decided_ms=0,
        task="",
        actions=["approve", "discard"],
    )
    text = drawn(operation_tables.reviews([row], TableLayout(width=width)), width)
    assert text.count(PROPOSAL) == 2


NO_OVERRIDE = {"override_cool_down": False}
CHANGES: list[tuple[list[str], str, dict[str, Any]]] = [
    (["drain", BROKERS[1]], "drain", {"broker": BROKERS[1], "dry_run": True}),
    (["drain", BROKERS[1], "--yes"], "drain", {"broker": BROKERS[1], "dry_run": False}),
    (["warm", BROKERS[1], "--yes"], "warm", {"broker": BROKERS[1], "dry_run": False}),
    (["cordon", BROKERS[1]], "cordon", {"broker": BROKERS[1]}),
    (["uncordon", ROOMY], "uncordon", {"broker": ROOMY}),
    (["pin", BUNDLE, "--for", "2h"], "pin", {"bundle": BUNDLE, "seconds": 7200.0}),
    (["unpin", BUNDLES[3]], "unpin", {"bundle": BUNDLES[3]}),
    (["exclude", "n:shop/*"], "exclude", {"pattern": "n:shop/*", "seconds": None}),
    (["include", "t:acme"], "include", {"pattern": "t:acme"}),
    (["pause", "--scope", "tenant:shop", "--for", "1h"], "pause_scope", {"scope": "tenant:shop", "seconds": 3600.0}),
    (["resume", "--scope", "tenant:acme"], "resume_scope", {"scope": "tenant:acme"}),
    (
        ["transfer", BUNDLE, "--to", ROOMY],
        "transfer",
        {"name": BUNDLE, "to": ROOMY, "execute": False} | NO_OVERRIDE,
    ),
    (
        ["unload", IN_BUNDLE, "--yes", "--override-cool-down"],
        "unload",
        {"name": IN_BUNDLE, "execute": True, "override_cool_down": True},
    ),
    (
        ["split", "shop/orders/LARGEST", "--algorithm", "range_equally_divide", "--unload", "--yes"],
        "split",
        {
            "name": "shop/orders/LARGEST",
            "options": SplitOptions(algorithm=SplitAlgorithm.RANGE, unload=True),
            "execute": True,
        },
    ),
    (
        ["unload", "shop/orders", "--yes"],
        "unload_namespace",
        {"namespace": "shop/orders", "execute": True} | NO_OVERRIDE,
    ),
    (
        ["split", BUNDLE, "--at", "0x8000000"],
        "split",
        {"name": BUNDLE, "options": SplitOptions(at=(0x8000000,)), "execute": False},
    ),
]


@pytest.mark.parametrize(("command", "name", "expected"), CHANGES, ids=lambda item: str(item)[:30])
def test_changes(sidecar: Sidecar, command: list[str], name: str, expected: dict[str, Any]) -> None:
    """They reach the service with person and reason; over TCP they are refused with the way out."""
    requests, who = sidecar.shop.service.requests, {"reason": "before", "by": "bob"}
    sidecar.do(requests.pin(BUNDLES[3], seconds=None, **who))
    sidecar.do(requests.exclude("t:acme", seconds=None, **who))
    sidecar.do(requests.pause_scope("tenant:acme", seconds=None, **who))
    if command[0] == "uncordon":
        sidecar.do(requests.cordon(ROOMY, **who))
    result = sidecar.run(*command, *WHO, "-o", "json")
    assert result.exit_code == 0 and result.stdout.startswith("{"), result.output
    assert sidecar.service.asked(f"requests.{name}") == [expected | BY]
    refused = sidecar.run(*command, *WHO, to="url")
    assert refused.exit_code == 4 and "unix socket" in refused.stderr


def test_a_proposal_is_approved_or_discarded_by_a_second_person(sidecar: Sidecar) -> None:
    """A task that is not wanted any more is stopped."""
    sidecar.be(review=True)
    for bundle, verb in ((BUNDLE, "approve"), (BUNDLES[6], "discard")):
        proposed = sidecar.run("unload", bundle, "--yes", *WHO, "-o", "json")
        id_ = json.loads(proposed.stdout)["review"]
        assert id_ in sidecar.run("review", "list").stdout
        own = sidecar.run("review", "approve", id_, *WHO)
        assert own.exit_code == 4 and "ann" in own.stderr
        decided = sidecar.run("review", verb, id_, "--reason", "fine", "--by", "bob", "-o", "json")
        assert decided.exit_code == 0, decided.output
        assert sidecar.service.asked(f"requests.{verb}")[-1] == {"id_": id_, "reason": "fine", "by": "bob"}
        if verb == "approve":
            task = json.loads(decided.stdout)["task"]
            stopped = sidecar.run("stop", task, *WHO)
            assert stopped.exit_code == 0 and "stopping" in stopped.stdout


def test_a_dry_run_says_that_nothing_was_done_and_what_would_be(sidecar: Sidecar) -> None:
    """The bundle first, then the move, and what every other broker says."""
    sidecar.do(sidecar.shop.service.requests.cordon(BROKERS[1], **BY))
    sidecar.do(sidecar.shop.service.requests.pin(BUNDLES[1], seconds=None, **BY))
    text = " ".join(sidecar.run("transfer", BUNDLE, "--to", ROOMY, *WHO).stdout.split())
    assert text.startswith(f"{BUNDLE} moves with its 1 known topic")
    for part in ("82.0% -> 62.0%", "Cordoned:", "accepts the bundle", "dry run: nothing was done; --yes"):
        assert part in text
    text = " ".join(sidecar.run("drain", FULL, *WHO).stdout.split())
    assert "1 stays for now" in text and "Pinned" in text and "dry run" in text
    # Not of the row above it.
    assert "stays: Pinned: an operator pinned the bundle" in text


DRY = [
    ["transfer", BUNDLE, "--to", BROKERS[2]],
    ["unload", BUNDLE],
    ["unload", "shop/orders"],
    ["split", BUNDLE],
    ["drain", BROKERS[1]],
    ["warm", ROOMY],
]


def test_a_refused_dry_run_is_exit_code_4(sidecar: Sidecar) -> None:
    """A script must not take it for a yes."""
    sidecar.do(sidecar.shop.service.requests.pin(BUNDLE, seconds=None, **BY))
    result = sidecar.run("unload", BUNDLE, *WHO)
    assert result.exit_code == 4 and "Pinned" in result.stdout and "refused" in result.stdout
    assert "--override-cool-down" not in result.stdout
    assert "refused; end the pin: `bundlekeel unpin`; `bundlekeel operations` shows who" in " ".join(
        result.stdout.split()
    )


def test_at_80_columns_names_can_be_copied(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bundle, source and target of each move stand in one piece."""
    monkeypatch.setenv("COLUMNS", "80")
    for command in (["drain", BROKERS[0]], ["warm", BROKERS[2]], ["unload", "shop/orders"]):
        lines = [line.strip() for line in sidecar.run(*command).stdout.splitlines()]
        assert f"{BROKERS[0]} → {BROKERS[2]}" in lines and max(map(len, lines)) <= 80
        assert any(line.startswith(BUNDLE) for line in lines)


def test_what_a_code_means_is_told_once(sidecar: Sidecar) -> None:
    """The refusal has the sentence; candidates that say the same have the code."""
    sidecar.do(sidecar.shop.service.requests.cordon(ROOMY, **BY))
    text = " ".join(sidecar.run("transfer", BUNDLE, "--to", ROOMY, *WHO).stdout.split())
    assert text.count(Code.CORDONED.explanation) == 1 and text.count("Cordoned") >= 2


def test_a_refusal_names_the_option_that_allows_it(sidecar: Sidecar) -> None:
    """Of a bundle that moved lately; a split has no such option. Another obstacle may show then: no promise."""
    unloaded(sidecar)
    for command in (["transfer", BUNDLE, "--to", BROKERS[1]], ["unload", BUNDLE]):
        assert "`--override-cool-down` ignores this obstacle" in sidecar.run(*command, *WHO).stdout
    assert "--override-cool-down" not in sidecar.run("split", BUNDLE, *WHO).stdout


def test_no_option_is_said_to_lift_a_refusal_of_the_target(sidecar: Sidecar) -> None:
    """With `--override-cool-down` the cordon of the target refused it again."""
    unloaded(sidecar)
    sidecar.do(sidecar.shop.turns())
    sidecar.do(sidecar.shop.service.requests.cordon(BROKERS[1], **BY))
    said = sidecar.run("transfer", BUNDLE, "--to", BROKERS[1]).stdout.splitlines()[-1]
    assert "(`--override-cool-down` ignores this obstacle)" in said
    assert said.endswith("Cordoned (end the cordon or drain: `bundlekeel uncordon`)")


@pytest.mark.parametrize("command", DRY, ids=lambda item: item[0])
def test_a_dry_run_names_no_option_that_would_be_refused(sidecar: Sidecar, command: list[str]) -> None:
    """In another mode than act, or paused, it says what has to change first."""
    sidecar.run("mode", "recommend", *WHO)
    last = sidecar.run(*command).stdout.splitlines()[-1]
    assert last.endswith("the mode is recommend; first `bundlekeel mode act`") and "--yes" not in last
    sidecar.run("mode", "act", *WHO)
    assert sidecar.run(*command).stdout.splitlines()[-1].endswith("; --yes executes it")
    sidecar.run("pause", *WHO)
    assert sidecar.run(*command).stdout.splitlines()[-1].endswith("is paused; first `bundlekeel resume`")


def test_j08_the_unload_of_a_namespace_tells_what_moves_and_what_stays(moving: Sidecar) -> None:
    """Exit code 0 while something moves; 4 when all of it stays; its task is waited for."""
    pin = moving.shop.service.requests.pin
    moving.do(pin(BUNDLES[3], seconds=None, **BY))
    text = " ".join(moving.run("unload", "shop/orders").stdout.split())
    assert text.startswith("3 of 8 bundles of shop/orders to unload") and "82" in text
    assert "Pinned" in text and "dry run: nothing was done; --yes" in text
    result = moving.run("unload", "shop/orders", "--yes", "--wait", *WHO)
    assert result.exit_code == 0 and ": done" in result.stdout
    for bundle in (BUNDLES[0], BUNDLES[6], BUNDLES[9]):
        moving.do(pin(bundle, seconds=None, **BY))
    result = moving.run("unload", "shop/orders")
    assert result.exit_code == 4 and "refused" in result.stdout


def test_waiting_for_a_task_and_for_a_second_person(moving: Sidecar) -> None:
    """--wait tells how the task ended; what is proposed has none yet."""
    command = ["transfer", BUNDLE, "--to", ROOMY, "--yes", "--wait", *WHO]
    result = moving.run(*command)
    assert result.exit_code == 0 and "task req-0000000000: done" in result.stdout
    assert moving.shop.cluster.owners()[BUNDLE] == ROOMY
    moving.be(review=True)
    result = moving.run(*command)
    (review,) = moving.do(moving.shop.service.requests.reviews())
    assert result.exit_code == 0 and f"review approve {review.id}" in " ".join(result.stdout.split())


@pytest.mark.parametrize("state", ["failed", "done"])
@pytest.mark.parametrize(
    "command",
    [["transfer", BUNDLE, "--to", ROOMY, "--yes"], ["unload", "shop/orders", "--yes"], ["plan", "execute"]],
    ids=lambda item: item[0],
)
def test_a_bundle_that_did_not_move_as_asked_is_named(sidecar: Sidecar, command: list[str], state: str) -> None:
    """Exit code 1, also when other bundles of the task moved; it was 0, and a script restarted the broker."""
    command = [*command, sidecar.plan().hash] if command[0] == "plan" else command
    rows = [
        OutcomeView(bundle=BUNDLES[6], outcome="done", landed_on=ROOMY),
        OutcomeView(bundle=BUNDLE, outcome="landed_elsewhere", landed_on=FULL, code=Code.STILL_AT_SOURCE),
    ]
    sidecar.service.results["tasks"] = lambda tasks: [replace(task, state=state, moves=rows) for task in tasks]
    result = sidecar.run(*command, "--wait", *WHO)
    assert (result.exit_code, state in result.stdout) == (1, True), result.output
    assert f"1 of 2 bundles did not move as requested:\n  - {BUNDLE}: landed_elsewhere (StillAtSource)" in result.stderr


def test_drain_waits_until_the_broker_is_empty(moving: Sidecar) -> None:
    """Progress goes to stderr, the end to stdout."""
    result = moving.run("drain", ROOMY, "--yes", "--wait", *WHO, "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert "0 left" in result.stderr or "empty" in result.stderr
    assert json.loads(result.stdout)["progress"]["state"] == "empty"
    assert ROOMY not in moving.shop.cluster.owners().values()


def test_drain_waits_for_a_follower_that_does_not_know_of_it_yet(moving: Sidecar) -> None:
    """The first answer may precede the follower's view; nobody ended the drain."""
    unseen = iter((True, True))
    moving.service.results["requests.operations"] = lambda view: (
        replace(view, drains=[]) if next(unseen, False) else view
    )
    result = moving.run("drain", ROOMY, "--yes", "--wait", *WHO, "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["progress"]["state"] == "empty"


def test_a_drain_that_was_waited_for_gives_no_estimate(moving: Sidecar) -> None:
    """What is over takes no more time."""
    started = moving.run("drain", ROOMY, "--yes", *WHO)
    waited = moving.run("drain", ROOMY, "--yes", "--wait", *WHO)
    assert " remaining" in started.stdout and " remaining" not in waited.stdout


def test_what_is_held_is_not_waited_for(moving: Sidecar) -> None:
    """Before a takeover, after a handback: the drain is noted and moves nothing, and nobody waits ten minutes."""
    shed = Code.BROKERS_SHED_THEMSELVES
    moving.shop.cluster.model.dynamic["loadBalancerSheddingEnabled"] = "true"
    moving.do(moving.shop.turns(2))
    result = moving.run("drain", BROKERS[1], "--yes", "--wait", "--within", "1s", *WHO)
    assert result.exit_code == 4 and f"held ({shed})" in result.stderr, result.output
    assert f"nothing is moved now: {explain(shed)} ({shed}). The request is stored" in " ".join(result.stderr.split())
    shown = moving.run("operations").stdout
    assert shown.startswith("nothing is moved now: ") and f"{BROKERS[1]}: held ({shed})" in shown
    result = moving.run("warm", ROOMY, "--yes", "--wait", "--within", "1s", *WHO)
    assert result.exit_code == 4


def test_no_move_is_promised_that_is_not_carried_out(sidecar: Sidecar) -> None:
    """By the leader's last cycle, in a dry run and after --yes."""

    def put_aside(state: State) -> State:
        assert state.cycle is not None
        return replace(state, cycle=replace(state.cycle, obstacle=Code.PUT_ASIDE))

    sidecar.service.results["state"] = put_aside
    for command in (["drain", BROKERS[1]], ["transfer", BUNDLE, "--to", ROOMY]):
        for more in ([], ["--yes", *WHO]):
            said = " ".join(sidecar.run(*command, *more).stdout.split())
            assert f"nothing is executed now: {explain(Code.PUT_ASIDE)} ({Code.PUT_ASIDE})" in said
            assert "--yes executes it" not in said and "the next cycle starts it" not in said


def test_warm_waits_until_nothing_more_comes(moving: Sidecar) -> None:
    """Progress goes to stderr, the end to stdout."""
    result = moving.run("warm", ROOMY, "--yes", "--wait", "--within", "5s", *WHO, "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert f"{ROOMY}: 2 bundles, score" in result.stderr
    assert json.loads(result.stdout)["progress"]["moves"] == []
    assert list(moving.shop.cluster.owners().values()).count(ROOMY) > 2


def test_a_warm_that_somebody_ended_is_no_success(sidecar: Sidecar) -> None:
    """Bundles would still come, and none does."""
    sidecar.service.results["requests.operations"] = lambda view: replace(view, warms=[])
    result = sidecar.run("warm", ROOMY, "--yes", "--wait", "--within", "1s", *WHO)
    assert result.exit_code == 1 and "no longer warmed" in result.stderr


ENDS = [
    (["pin", BUNDLE], "until for good"),
    (["exclude", "n:shop/*"], "until for good"),
    (["pause", "--scope", "tenant:shop"], "until resumed"),
]


@pytest.mark.parametrize(("command", "said"), ENDS, ids=lambda item: str(item)[:30])
def test_what_has_no_end_says_so(sidecar: Sidecar, command: list[str], said: str) -> None:
    """`until 0` is no time."""
    assert said in " ".join(sidecar.run(*command, *WHO).stdout.split())


@pytest.mark.parametrize(
    ("scope", "said"), [([], "everything: resumed by ann"), (["--scope", "tenant:shop"], "tenant:shop: resumed")]
)
def test_resume_says_what_it_did(sidecar: Sidecar, scope: list[str], said: str) -> None:
    """Not only who asked, and why; JSON stays the answer of the API."""
    sidecar.run("pause", "--scope", "tenant:shop", *WHO)
    sidecar.run("pause", *WHO)
    result = sidecar.run("resume", *scope, *WHO)
    assert result.exit_code == 0 and result.stdout.startswith(said)
    assert ("these scopes are still paused: tenant:shop; " in result.stderr) is not scope
    sidecar.run("pause", *scope, *WHO)
    assert json.loads(sidecar.run("resume", *scope, *WHO, "-o", "json").stdout)["by"] == "ann"


def test_resume_without_a_pause_is_exit_code_1(sidecar: Sidecar) -> None:
    """As with --scope; it is sent all the same, since this sidecar may not know of a pause yet."""
    result = sidecar.run("resume", *WHO)
    assert (result.exit_code, result.stdout) == (1, "") and "no pause of all moves was active" in result.stderr
    assert sidecar.service.asked("resume") == [BY]


@pytest.mark.parametrize("command", [["pause"], ["mode", "recommend"]])
def test_what_stops_the_balancer_under_a_takeover_says_that_nobody_sheds(sidecar: Sidecar, command: list[str]) -> None:
    """The brokers' own shedding is off: with the balancer stopped an overloaded broker stays as it is."""
    assert "sheds" not in sidecar.run(*command, *WHO).stderr
    taken = TakeoverView(active=True, by="ann", reason="r", wall_ms=0, namespaces=(), ended=None)
    sidecar.service.results["state"] = lambda state: replace(state, takeover=taken)
    assert "warning: a takeover is active, so nothing sheds load until" in sidecar.run(*command, *WHO).stderr
    assert "sheds" not in sidecar.run("mode", "act", *WHO).stderr
    assert "sheds" not in sidecar.run("mode").stderr


def test_a_scope_that_matches_nothing_warns(sidecar: Sidecar) -> None:
    """A typing error is legal: the namespace may come later."""
    result = sidecar.run("pause", "--scope", "tenant:shopp", *WHO)
    assert result.exit_code == 0 and "warning: the pattern matches no bundle" in result.stderr
    assert sidecar.run("exclude", "t:shop", *WHO).stderr == ""


@pytest.mark.parametrize("command", [["pause"], ["pin", BUNDLE], ["exclude", "t:shop"]], ids=lambda item: item[0])
def test_how_long_has_a_unit(sidecar: Sidecar, command: list[str]) -> None:
    """Who types `5` means minutes or hours."""
    result = sidecar.run(*command, "--for", "5", *WHO)
    assert result.exit_code == 2 and "--for '5': expected a unit, such as 90s, 30m, 2h or 1d" in result.stderr
    assert not sidecar.service.calls


FAILURES: list[tuple[list[str], Callable[[Spied], None] | None, int, str]] = [
    (["drain", "b", *WHO], None, 1, "no broker 'b'"),
    (["uncordon", BROKERS[0], *WHO], None, 1, "neither cordoned"),
    (
        ["unload", BUNDLE, "--yes", *WHO],
        failing("requests.unload", Conflict("not carried out", difference=["Pinned"])),
        4,
        "Pinned",
    ),
    (
        ["unload", BUNDLE, "--yes", *WHO],
        failing("requests.unload", Conflict(f"not carried out: CoolDown{way_out('unload', [Code.COOL_DOWN])}")),
        4,
        "CoolDown; `--override-cool-down` ignores this obstacle",
    ),
    (
        ["review", "approve", "feed", *WHO],
        failing("requests.approve", Forbidden("ann proposed it")),
        4,
        "ann proposed it",
    ),
    (["split", BUNDLE, "--at", "half", *WHO], None, 2, "0x40000000"),
    (["split", BUNDLE, "--algorithm", "thirds", *WHO], None, 2, "flow_or_qps_equally_divide"),
    (["pin", BUNDLE, "--for", "soon", *WHO], None, 2, "2h"),
    (["transfer", BUNDLE, *WHO], None, 2, "--to"),
    (["drain", BROKERS[1], "--yes"], None, 2, "--reason"),
    (["warm", BROKERS[1], "--yes", "--reason", " "], None, 2, "--reason"),
    (["transfer", BUNDLE, "--to", BROKERS[2], "--yes"], None, 2, "--reason"),
    (["unload", BUNDLE, "--yes"], None, 2, "--reason"),
    (["split", BUNDLE, "--yes"], None, 2, "--reason"),
    (["cordon", BROKERS[1]], None, 2, "--reason"),
    (
        ["cordon", BROKERS[1], *WHO],
        failing("requests.cordon", Conflict("no other broker is open")),
        4,
        "no other broker is open",
    ),
    (["cordon", BROKERS[1], "--reason", "  "], None, 2, "must not be blank"),
    (["warm", ROOMY, "--yes", "--wait", "--within", "1s", *WHO], None, 3, "not done yet"),
    *(
        ([*command, "--yes", "--wait", "--within", "1s", *WHO], None, 3, "req-0000000000 is still waiting")
        for command in (["transfer", BUNDLE, "--to", ROOMY], ["unload", "shop/orders"])
    ),
]


@pytest.mark.parametrize(
    ("command", "prepare", "code", "said"), FAILURES, ids=lambda item: getattr(item, "__name__", str(item))[:40]
)
def test_exit_codes(
    sidecar: Sidecar, command: list[str], prepare: Callable[[Spied], None] | None, code: int, said: str
) -> None:
    """Stable exit codes, and a message on stderr that helps."""
    fails(sidecar, command, prepare, code, said)


def test_a_drain_that_somebody_ended_is_no_success(moving: Sidecar) -> None:
    """Its bundles are still there."""
    moving.service.results["requests.operations"] = lambda view: replace(view, drains=[])
    result = moving.run("drain", ROOMY, "--yes", "--wait", "--within", "1s", *WHO)
    assert result.exit_code == 1 and "no longer drained" in result.stderr


async def test_bundles_that_stay_for_one_reason_are_listed_below_it() -> None:
    """What a code means is told once, and each bundle has its own detail."""
    rows = [refusal(Code.COOL_DOWN, f"b{n}", detail=f"until 9:0{n}") for n in range(3)] + [refusal(Code.PINNED, "b3")]
    service = (await Shop().open()).service
    view = replace(await service.requests.unload_namespace("shop/orders"), refusals=rows)
    lines = drawn(operation_tables.unload(view, None, service.state, TableLayout())).splitlines()
    assert [line.partition(":")[0].strip() for line in lines if line.startswith("  ") and line[2].isupper()] == [
        "CoolDown",
        "Pinned",
    ]
    assert "    b1 (until 9:01)" in [line.rstrip() for line in lines] and "    b3" in [line.rstrip() for line in lines]


def test_a_refusal_says_each_reason_once(sidecar: Sidecar) -> None:
    """A reason that the sentence has already is not listed below it; others are."""
    said = "not carried out: Pinned: until noon"
    sidecar.service.fail["requests.transfer"] = Conflict(said, difference=["Pinned: until noon", "b-1 is gone"])
    result = sidecar.run("transfer", BUNDLE, "--to", BROKERS[2], "--yes", *WHO)
    assert result.stderr.splitlines() == [f"error: {said}", "  - b-1 is gone"]


@pytest.mark.parametrize(
    ("begin", "end", "rows"),
    [
        (["cordon", BROKERS[1]], ["uncordon", BROKERS[1]], [["broker", BROKERS[1]], ["ended", "cordon"]]),
        (["pin", BUNDLE], ["unpin", BUNDLE], [["bundle", BUNDLE], ["ended", "pin"]]),
        (["exclude", "t:shop"], ["include", "t:shop"], [["pattern", "t:shop"], ["ended", "exclusion"]]),
    ],
)
def test_a_command_that_ends_a_request_names_it(
    sidecar: Sidecar, begin: list[str], end: list[str], rows: list[list[str]]
) -> None:
    sidecar.run(*begin, *WHO)
    assert [line.split() for line in sidecar.run(*end, *WHO).stdout.splitlines()] == rows


def test_the_mode_before_is_told(sidecar: Sidecar) -> None:
    assert sidecar.run("mode", "act", *WHO).stdout.splitlines()[-1].split() == ["before", "act"]
