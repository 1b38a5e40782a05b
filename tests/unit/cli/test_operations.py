"""Drains, moves by hand, pins and reviews from the command line, against a served fake."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from bundlekeel.cli import units
from bundlekeel.cli.intervene import operation_tables
from bundlekeel.cli.output import TableLayout
from bundlekeel.core.model.codes import Code, explain, way_out
from bundlekeel.core.model.errors import Conflict, Forbidden, NotFound, SnapshotError
from bundlekeel.core.splitting.algorithms import SplitAlgorithm, SplitOptions
from bundlekeel.daemon.answers.picture import TakeoverView
from bundlekeel.daemon.answers.plans import OutcomeView, ReviewView
from tests.support.fake_places import NOW_MS, refusal
from tests.support.fake_service import BROKERS, HASH, FakeService
from tests.unit.cli.test_channel import drawn
from tests.unit.cli.test_commands import Sidecar, failing, fails, served, sidecar  # fixtures

__all__ = ["served", "sidecar"]

BUNDLE = "shop/orders/0x00000000_0x10000000"
WHO = ["--reason", "r", "--by", "ann"]


@pytest.mark.parametrize("command", [["operations"], ["review", "list"]], ids=" ".join)
@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_reads(sidecar: Sidecar, command: list[str], output: str) -> None:
    """In every format; JSON and YAML can be read."""
    result = sidecar.run(*command, "-o", output)
    assert result.exit_code == 0, result.output
    read: dict[str, Callable[[str], Any]] = {"json": json.loads, "yaml": yaml.safe_load}
    assert read.get(output, str.strip)(result.stdout)


def test_operations_tell_everything_that_was_asked(sidecar: Sidecar) -> None:
    """Progress and ETA of a drain, what stays and why; pins, exclusions, paused scopes."""
    text = " ".join(sidecar.run("operations").stdout.split())
    for part in (
        "1 left, 3 moved",
        f"begun {units.moment(NOW_MS)} by ",
        "about 12 s to go",
        "stay: 1 Pinned",
        f"{BROKERS[2]}: cordoned by ann: disks",
    ):
        assert part in text
    for part in (
        f"{BUNDLE}: pinned for good by ann: disks",
        "t:shop: excluded until",
        "tenant:shop: paused until resumed by ann",
    ):
        assert part in text


@pytest.mark.parametrize("width", [80, 100, 160])
def test_ids_of_proposals_are_whole(width: int) -> None:
    """They are typed again to approve one; on any terminal, and whatever the reason."""
    row = ReviewView(
        id=HASH,
        kind="plan",
        title=f"plan {HASH}: 3 moves",
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
    assert text.count(HASH) == 2


CHANGES: list[tuple[list[str], str, Any]] = [
    (["drain", BROKERS[1]], "drain", (BROKERS[1], True, "r", "ann")),
    (["drain", BROKERS[1], "--yes"], "drain", (BROKERS[1], False, "r", "ann")),
    (["warm", BROKERS[1], "--yes"], "warm", (BROKERS[1], False, "r", "ann")),
    (["cordon", BROKERS[1]], "cordon", (BROKERS[1], "r", "ann")),
    (["uncordon", BROKERS[1]], "uncordon", (BROKERS[1], "r", "ann")),
    (["pin", BUNDLE, "--for", "2h"], "pin", (BUNDLE, 7200.0, "r", "ann")),
    (["unpin", BUNDLE], "unpin", (BUNDLE, "r", "ann")),
    (["exclude", "n:shop/*"], "exclude", ("n:shop/*", None, "r", "ann")),
    (["include", "n:shop/*"], "include", ("n:shop/*", "r", "ann")),
    (["pause", "--scope", "tenant:shop", "--for", "1h"], "pause_scope", ("tenant:shop", 3600.0, "r", "ann")),
    (["resume", "--scope", "tenant:shop"], "resume_scope", ("tenant:shop", "r", "ann")),
    (["stop", "req-0000000012"], "stop", ("req-0000000012", "r", "ann")),
    (["review", "approve", HASH], "approve", (HASH, "r", "ann")),
    (["review", "discard", HASH], "discard", (HASH, "r", "ann")),
    (
        ["transfer", BUNDLE, "--to", BROKERS[2]],
        "manual_move",
        ("transfer", BUNDLE, BROKERS[2], False, False, "r", "ann"),
    ),
    (
        ["unload", "persistent://shop/orders/a?b#c", "--yes", "--override-cool-down"],
        "manual_move",
        ("unload", "persistent://shop/orders/a?b#c", "", True, True, "r", "ann"),
    ),
    (
        ["split", "shop/orders/LARGEST", "--algorithm", "topic_count_equally_divide", "--unload", "--yes"],
        "manual_move",
        (
            "split",
            "shop/orders/LARGEST",
            SplitOptions(algorithm=SplitAlgorithm.TOPIC_COUNT, unload=True),
            True,
            "r",
            "ann",
        ),
    ),
    (["unload", "shop/orders", "--yes"], "unload_namespace", ("shop/orders", False, True, "r", "ann")),
    (
        ["split", BUNDLE, "--at", "0x8000000"],
        "manual_move",
        ("split", BUNDLE, SplitOptions(at=(0x8000000,)), False, "r", "ann"),
    ),
]


@pytest.mark.parametrize(("command", "name", "expected"), CHANGES, ids=lambda item: str(item)[:30])
def test_changes(sidecar: Sidecar, command: list[str], name: str, expected: Any) -> None:
    """They reach the service with person and reason; over TCP they are refused with the way out."""
    result = sidecar.run(*command, *WHO)
    assert result.exit_code == 0, result.output
    assert (name, expected) in sidecar.service.calls
    refused = sidecar.run(*command, *WHO, to="url")
    assert refused.exit_code == 4 and "unix socket" in refused.stderr
    assert sidecar.run(*command, "-o", "json", *WHO).stdout.startswith("{")


def test_a_dry_run_says_that_nothing_was_done_and_what_would_be(sidecar: Sidecar) -> None:
    """The bundle first, then the move, and what every other broker says."""
    sidecar.service.mode = "act"
    text = " ".join(sidecar.run("transfer", BUNDLE, "--to", BROKERS[2], *WHO).stdout.split())
    assert text.startswith(f"{BUNDLE} moves with its 3 known topics")
    for part in ("82.0% -> 52.0%", "PolicyForbids:", "takes it", "dry run: nothing was done; --yes"):
        assert part in text
    text = " ".join(sidecar.run("drain", BROKERS[1], *WHO).stdout.split())
    assert "1 stays for now" in text and "Pinned" in text and "dry run" in text
    # Not of the row above it.
    assert "stays: Pinned: a person pinned it" in text


DRY = [
    ["transfer", BUNDLE, "--to", BROKERS[2]],
    ["unload", BUNDLE],
    ["unload", "shop/orders"],
    ["split", BUNDLE],
    ["drain", BROKERS[1]],
    ["warm", BROKERS[1]],
]


@pytest.mark.parametrize("command", DRY, ids=lambda item: item[0])
def test_a_dry_run_needs_no_reason(sidecar: Sidecar, command: list[str]) -> None:
    """Looking is free; only what is carried out ends in the journal."""
    result = sidecar.run(*command)
    assert result.exit_code == 0, result.output
    assert "dry run" in " ".join(result.stdout.split())


def test_a_refused_dry_run_is_exit_code_4(sidecar: Sidecar) -> None:
    """A script must not take it for a yes."""
    sidecar.service.requests.refused = Code.PINNED
    result = sidecar.run("unload", BUNDLE, *WHO)
    assert result.exit_code == 4 and "Pinned" in result.stdout and "refused" in result.stdout
    assert "--override-cool-down" not in result.stdout
    assert "refused; end the pin: `bundlekeel unpin`; `bundlekeel operations` tells who" in " ".join(
        result.stdout.split()
    )


def test_at_80_columns_names_can_be_copied(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bundle, source and target of each move stand in one piece."""
    monkeypatch.setenv("COLUMNS", "80")
    for command in (["drain", BROKERS[0]], ["warm", BROKERS[2]], ["unload", "shop/orders"]):
        lines = [line.strip() for line in sidecar.run(*command).stdout.splitlines()]
        assert f"{BROKERS[0]} → {BROKERS[2]}" in lines and max(map(len, lines)) <= 80
        assert any(line.startswith(BUNDLE) for line in lines)


def test_an_answer_shows_no_list_of_python(sidecar: Sidecar) -> None:
    """What an uncordon ended."""
    text = sidecar.run("uncordon", BROKERS[1], *WHO).stdout
    assert "cordon" in text and "[" not in text


def test_what_a_code_means_is_told_once(sidecar: Sidecar) -> None:
    """The refusal has the sentence; candidates that say the same have the code."""
    sidecar.service.requests.refused = Code.POLICY_FORBIDS
    text = " ".join(sidecar.run("transfer", BUNDLE, "--to", BROKERS[2], *WHO).stdout.split())
    assert text.count(Code.POLICY_FORBIDS.explanation) == 1 and text.count("PolicyForbids") == 2
    assert "known topics PolicyForbids: " in text


def test_a_refusal_names_the_option_that_allows_it(sidecar: Sidecar) -> None:
    """Of a bundle that moved lately; a split has no such option. Another obstacle may show then: no promise."""
    sidecar.service.requests.refused = Code.COOL_DOWN
    for command in DRY[:2]:
        assert "refused; `--override-cool-down` lifts that" in sidecar.run(*command, *WHO).stdout
    assert "--override-cool-down" not in sidecar.run("split", BUNDLE, *WHO).stdout


def test_no_option_is_said_to_lift_a_refusal_of_the_target(sidecar: Sidecar) -> None:
    """With `--override-cool-down` the cordon of the target refused it again."""
    sidecar.service.requests.refused, sidecar.service.requests.refused_target = Code.COOL_DOWN, Code.CORDONED
    said = sidecar.run("transfer", BUNDLE, "--to", BROKERS[2]).stdout.splitlines()[-1]
    lifted = "CoolDown (`--override-cool-down` lifts that)"
    assert said == f"refused: {lifted}, Cordoned (end the cordon or drain: `bundlekeel uncordon`)"


@pytest.mark.parametrize("command", DRY, ids=lambda item: item[0])
def test_a_dry_run_names_no_option_that_would_be_refused(sidecar: Sidecar, command: list[str]) -> None:
    """In another mode than act, or paused, it says what has to change first."""
    last = sidecar.run(*command).stdout.splitlines()[-1]
    assert last.endswith("the mode is recommend; first `bundlekeel mode act`") and "--yes" not in last
    sidecar.service.mode = "act"
    assert sidecar.run(*command).stdout.splitlines()[-1].endswith("; --yes carries it out")
    sidecar.run("pause", *WHO)
    assert sidecar.run(*command).stdout.splitlines()[-1].endswith("is paused; first `bundlekeel resume`")


def test_j08_the_unload_of_a_namespace_tells_what_moves_and_what_stays(sidecar: Sidecar) -> None:
    """Exit code 0 while something moves; 4 when all of it stays; its task is waited for."""
    sidecar.service.mode = "act"
    text = " ".join(sidecar.run("unload", "shop/orders").stdout.split())
    assert text.startswith("1 of 2 bundles of shop/orders to unload") and "82" in text
    assert "Pinned" in text and "dry run: nothing was done; --yes" in text
    result = sidecar.run("unload", "shop/orders", "--yes", "--wait", *WHO)
    assert result.exit_code == 0 and "task req-0000000012: done" in result.stdout
    sidecar.service.requests.refused = Code.PINNED
    result = sidecar.run("unload", "shop/orders")
    assert result.exit_code == 4 and "refused" in result.stdout


def test_waiting_for_a_task_and_for_a_second_person(sidecar: Sidecar) -> None:
    """--wait tells how the task ended; what is proposed has none yet."""
    result = sidecar.run("transfer", BUNDLE, "--to", BROKERS[2], "--yes", "--wait", *WHO)
    assert result.exit_code == 0 and "task req-0000000012: done" in result.stdout
    sidecar.service.requests.review = HASH
    result = sidecar.run("transfer", BUNDLE, "--to", BROKERS[2], "--yes", "--wait", *WHO)
    assert result.exit_code == 0 and f"review approve {HASH}" in " ".join(result.stdout.split())


@pytest.mark.parametrize("state", ["failed", "done"])
@pytest.mark.parametrize(
    "command",
    [["transfer", BUNDLE, "--to", BROKERS[2], "--yes"], ["unload", "shop/orders", "--yes"], ["plan", "execute", HASH]],
    ids=lambda item: item[0],
)
def test_a_bundle_that_did_not_move_as_asked_is_named(sidecar: Sidecar, command: list[str], state: str) -> None:
    """Exit code 1, also when other bundles of the task moved; it was 0, and a script restarted the broker."""
    sidecar.run("plan")
    row = OutcomeView(bundle=BUNDLE, outcome="landed_elsewhere", landed_on=BROKERS[0], code=Code.STILL_AT_SOURCE)
    sidecar.service.task_state, sidecar.service.other_moves = state, [row]
    result = sidecar.run(*command, "--wait", *WHO)
    assert (result.exit_code, state in result.stdout) == (1, True)
    assert f"1 of 2 bundles did not move as asked:\n  - {BUNDLE}: landed_elsewhere (StillAtSource)" in result.stderr


def test_drain_waits_until_the_broker_is_empty(sidecar: Sidecar) -> None:
    """Progress goes to stderr, the end to stdout."""
    result = sidecar.run("drain", BROKERS[1], "--yes", "--wait", *WHO, "-o", "json")
    assert result.exit_code == 0
    assert "1 left" in result.stderr and "0 left" in result.stderr
    assert json.loads(result.stdout)["progress"]["state"] == "empty"


def test_drain_waits_for_a_follower_that_does_not_know_of_it_yet(sidecar: Sidecar) -> None:
    """The first answer may precede the follower's view; nobody ended the drain."""
    sidecar.service.requests.unseen = 2
    result = sidecar.run("drain", BROKERS[1], "--yes", "--wait", *WHO, "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["progress"]["state"] == "empty"


def test_a_drain_that_was_waited_for_gives_no_estimate(sidecar: Sidecar) -> None:
    """What is over takes no more time."""
    asked = sidecar.run("drain", BROKERS[1], "--yes", *WHO)
    waited = sidecar.run("drain", BROKERS[1], "--yes", "--wait", *WHO)
    assert "until that is done" in asked.stdout and "until that is done" not in waited.stdout


def test_what_is_held_is_not_waited_for(sidecar: Sidecar) -> None:
    """Before a takeover, after a handback: the drain is noted and moves nothing, and nobody waits ten minutes."""
    shed = Code.BROKERS_SHED_THEMSELVES
    sidecar.service.requests.held, sidecar.service.requests.left = shed, 10_000
    result = sidecar.run("drain", BROKERS[1], "--yes", "--wait", "--within", "1s", *WHO)
    assert result.exit_code == 4 and f"held ({shed})" in result.stderr
    assert f"nothing is moved now: {explain(shed)} ({shed}). It is noted" in " ".join(result.stderr.split())
    shown = sidecar.run("operations").stdout
    assert shown.startswith("nothing is moved now: ") and f"{BROKERS[1]}: held ({shed})" in shown
    result = sidecar.run("warm", BROKERS[0], "--yes", "--wait", "--within", "1s", *WHO)
    assert result.exit_code == 4


def test_no_move_is_promised_that_is_not_carried_out(sidecar: Sidecar) -> None:
    """By the leader's last cycle, in a dry run and after --yes."""
    service = sidecar.service
    service.obstacle, service.mode, service.mode_ceiling, service.paused = Code.PUT_ASIDE, "act", "act", None
    for command in (["drain", BROKERS[1]], ["transfer", BUNDLE, "--to", BROKERS[2]]):
        for more in ([], ["--yes", *WHO]):
            said = " ".join(sidecar.run(*command, *more).stdout.split())
            assert f"nothing is carried out now: {explain(Code.PUT_ASIDE)} ({Code.PUT_ASIDE})" in said
            assert "--yes carries it out" not in said and "the next cycle begins it" not in said


def test_warm_waits_until_nothing_more_comes(sidecar: Sidecar) -> None:
    """Progress goes to stderr, the end to stdout."""
    result = sidecar.run("warm", BROKERS[1], "--yes", "--wait", "--within", "2s", *WHO)
    assert result.exit_code == 0, result.stderr
    row = next(row for row in sidecar.service.brokers() if row.broker == BROKERS[1])
    assert f"{BROKERS[1]}: {row.bundles} bundles, score" in result.stderr
    assert f"0 bundles come to {BROKERS[1]}" in result.stdout and "until that is done" not in result.stdout
    result = sidecar.run("warm", BROKERS[1], "--yes", "--wait", "--within", "1s", "-o", "json", *WHO)
    assert json.loads(result.stdout)["progress"]["moves"] == []


def test_a_warm_that_somebody_ended_is_no_success(sidecar: Sidecar) -> None:
    """Bundles would still come, and none does."""
    sidecar.service.requests.ended = True
    result = sidecar.run("warm", BROKERS[1], "--yes", "--wait", "--within", "1s", *WHO)
    assert result.exit_code == 1 and "not warmed any more" in result.stderr


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
    sidecar.run("pause", *WHO)
    result = sidecar.run("resume", *scope, *WHO)
    assert result.exit_code == 0 and result.stdout.startswith(said)
    assert ("still paused, until `resume --scope`: tenant:shop" in result.stderr) is not scope
    sidecar.run("pause", *WHO)
    assert json.loads(sidecar.run("resume", *scope, *WHO, "-o", "json").stdout)["by"] == "ann"


def test_resume_without_a_pause_is_exit_code_1(sidecar: Sidecar) -> None:
    """As with --scope; it is sent all the same, since this sidecar may not know of a pause yet."""
    result = sidecar.run("resume", *WHO)
    assert (result.exit_code, result.stdout) == (1, "") and "there was no pause of everything" in result.stderr
    assert ("resume", ("r", "ann")) in sidecar.service.calls


@pytest.mark.parametrize("command", [["pause"], ["mode", "recommend"]])
def test_what_stops_the_balancer_under_a_takeover_says_that_nobody_sheds(
    sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """The brokers' own shedding is off: with the balancer stopped an overloaded broker stays as it is."""
    assert "sheds" not in sidecar.run(*command, *WHO).stderr
    taken = TakeoverView(active=True, by="ann", reason="r", wall_ms=0, namespaces=[], ended=None)
    state = replace(sidecar.service.state(), takeover=taken)
    monkeypatch.setattr(sidecar.service, "state", lambda: state)
    assert "warning: nobody sheds what is taken over" in sidecar.run(*command, *WHO).stderr
    assert "sheds" not in sidecar.run("mode", "act", *WHO).stderr
    assert "sheds" not in sidecar.run("mode").stderr


def test_a_scope_that_matches_nothing_warns(sidecar: Sidecar) -> None:
    """A typing error is legal: the namespace may come later."""
    result = sidecar.run("pause", "--scope", "tenant:shopp", *WHO)
    assert result.exit_code == 0 and "warning: it matches no bundle" in result.stderr
    assert sidecar.run("exclude", "t:shop", *WHO).stderr == ""


@pytest.mark.parametrize("command", [["pause"], ["pin", BUNDLE], ["exclude", "t:shop"]], ids=lambda item: item[0])
def test_how_long_has_a_unit(sidecar: Sidecar, command: list[str]) -> None:
    """Who types `5` means minutes or hours."""
    result = sidecar.run(*command, "--for", "5", *WHO)
    assert result.exit_code == 2 and "--for '5': expected a unit, such as 90s, 30m, 2h or 1d" in result.stderr
    assert not sidecar.service.calls


def never_ends(service: FakeService) -> None:
    service.mode, service.task_state = "act", "running"


FAILURES: list[tuple[list[str], Callable[[FakeService], None] | None, int, str]] = [
    (["drain", "b", *WHO], failing("drain", NotFound("no broker 'b'")), 1, "no broker 'b'"),
    (["uncordon", BROKERS[0], *WHO], None, 1, "neither cordoned"),
    (
        ["unload", BUNDLE, "--yes", *WHO],
        failing("manual_move", Conflict("not carried out", difference=["Pinned"])),
        4,
        "Pinned",
    ),
    (
        ["unload", BUNDLE, "--yes", *WHO],
        failing("manual_move", Conflict(f"not carried out: CoolDown{way_out('unload', [Code.COOL_DOWN])}")),
        4,
        "CoolDown; `--override-cool-down` lifts that",
    ),
    (["review", "approve", HASH, *WHO], failing("approve", Forbidden("ann proposed it")), 4, "ann proposed it"),
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
        failing("cordon", Conflict("no other broker is open")),
        4,
        "no other broker is open",
    ),
    (["cordon", BROKERS[1], "--reason", "  "], None, 2, "must say something"),
    (["drain", BROKERS[2], "--yes", "--wait", "--within", "1s", *WHO], None, 1, "not drained any more"),
    (["warm", BROKERS[0], "--yes", "--wait", "--within", "1s", *WHO], None, 3, "not done yet"),
    *(
        ([*command, "--yes", "--wait", "--within", "1s", *WHO], never_ends, 3, "req-0000000012 is still running")
        for command in (["transfer", BUNDLE, "--to", BROKERS[2]], ["unload", "shop/orders"], ["split", BUNDLE])
    ),
]


@pytest.mark.parametrize(
    ("command", "prepare", "code", "said"), FAILURES, ids=lambda item: getattr(item, "__name__", str(item))[:40]
)
def test_exit_codes(
    sidecar: Sidecar, command: list[str], prepare: Callable[[FakeService], None] | None, code: int, said: str
) -> None:
    """Stable exit codes, and a message on stderr that helps."""
    fails(sidecar, command, prepare, code, said)


async def test_bundles_that_stay_for_one_reason_are_listed_below_it() -> None:
    """What a code means is told once, and each bundle has its own detail."""
    rows = [refusal(Code.COOL_DOWN, f"b{n}", detail=f"until 9:0{n}") for n in range(3)] + [refusal(Code.PINNED, "b3")]
    view = replace(await FakeService().requests.unload_namespace("shop/orders"), refusals=rows)
    lines = drawn(operation_tables.unload(view, None, FakeService().state, TableLayout())).splitlines()
    assert [line.partition(":")[0].strip() for line in lines if line.startswith("  ") and line[2].isupper()] == [
        "CoolDown",
        "Pinned",
    ]
    assert "    b1 (until 9:01)" in [line.rstrip() for line in lines] and "    b3" in [line.rstrip() for line in lines]


@pytest.mark.parametrize("command", ["set acme --member t:acme --limit publish_bytes=10MB", "rm acme", "reset acme"])
def test_a_change_of_a_group_warns_where_nothing_is_enforced(sidecar: Sidecar, command: str) -> None:
    """Here by the mode. The answer itself is of the group as it was stored, so the warning is on stderr."""
    result = sidecar.run("quota", *command.split(), *WHO)
    assert result.exit_code == 0 and "warning" not in result.stdout
    told = f"warning: no rate changes at the brokers (RecommendOnly: {explain(Code.RECOMMEND_ONLY)})"
    assert result.stderr.startswith(told) and "docs/operations/quotas.md" in result.stderr
    sidecar.service.quotas.obstacle = None
    assert sidecar.run("quota", *command.split(), *WHO).stderr == ""


def test_a_change_of_a_group_is_stored_though_the_groups_cannot_be_read(sidecar: Sidecar) -> None:
    """The read only says whether rates change at the brokers."""
    sidecar.service.fail["quotas"] = SnapshotError("no picture yet")
    result = sidecar.run("quota", "set", "acme", "--member", "t:acme", "--limit", "publish_bytes=10MB", *WHO)
    assert result.exit_code == 0 and result.stdout != ""
    assert result.stderr.startswith("warning: the change is stored; ") and "no picture yet" in result.stderr


def test_a_group_that_was_set_shows_its_limits_as_ls_does(sidecar: Sidecar) -> None:
    """With units; kinds without a limit are left out."""
    said = sidecar.run("quota", "set", "acme", "--member", "t:acme", "--limit", "publish_bytes=10MB", *WHO).stdout
    assert said.splitlines()[-1].split() == ["limits", "publish_bytes=10", "MB/s"]


def test_a_refusal_says_each_reason_once(sidecar: Sidecar) -> None:
    """A reason that the sentence has already is not listed below it; others are."""
    said = "not carried out: Pinned: until noon"
    sidecar.service.fail["manual_move"] = Conflict(said, difference=["Pinned: until noon", "b-1 is gone"])
    result = sidecar.run("transfer", BUNDLE, "--to", BROKERS[2], "--yes", *WHO)
    assert result.stderr.splitlines() == [f"error: {said}", "  - b-1 is gone"]


def test_what_unpin_ended(sidecar: Sidecar) -> None:
    """As `uncordon` says it."""
    said = sidecar.run("unpin", BUNDLE, *WHO).stdout
    assert [line.split() for line in said.splitlines()] == [["bundle", BUNDLE], ["ended", "pin"]]


def test_what_include_ended_and_what_the_mode_was(sidecar: Sidecar) -> None:
    """`include` printed the pattern alone; `mode act` looked like a change where it was none."""
    sidecar.run("exclude", "t:shop", *WHO)
    said = sidecar.run("include", "t:shop", *WHO).stdout
    assert [line.split() for line in said.splitlines()] == [["pattern", "t:shop"], ["ended", "exclusion"]]
    sidecar.service.mode = "act"
    said = sidecar.run("mode", "act", *WHO).stdout
    assert said.splitlines()[-1].split() == ["before", "act"]


def test_dry_runs_need_the_socket_too(sidecar: Sidecar) -> None:
    """Of a dry run it said only that no changes are accepted."""
    result = sidecar.run("drain", BROKERS[1], to="url")
    assert result.exit_code == 4 and "accepts no changes, and no dry runs of them; use the unix socket" in result.stderr
