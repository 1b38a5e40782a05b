"""What `status` and `brokers` show of a sidecar's answers."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from bundlekeel.cli.exit_codes import CliError
from bundlekeel.cli.output import decoded, grid, table
from bundlekeel.leader.state.responses import EndedView, TakeoverView
from bundlekeel.model.members import Member
from bundlekeel.views.picture import BrokerView
from tests.support.shop import BROKERS, BUNDLE
from tests.unit.cli.test_commands import Sidecar, served, sidecar

__all__ = ["served", "sidecar"]


def test_a_name_that_is_too_long_for_its_column_is_broken_between_its_parts() -> None:
    """After one of `/_.,-`. Words are kept whole."""
    made, file = table("name", ">score", "note"), io.StringIO()
    made.add_row("persistent://shop/orders/line-items", "1", "owned by broker-0.pulsar.example:8080 now")
    Console(width=40, file=file).print(made)
    assert [line.rstrip() for line in file.getvalue().splitlines()] == [
        "name             score  note",
        "persistent://        1  owned by",
        "shop/orders/            broker-0.pulsar.",
        "line-items              example:8080 now",
    ]


def test_a_grid_breaks_no_word_that_has_a_seam_elsewhere() -> None:
    """A key of the brokers has no mark, but humps."""
    made, file = grid("bold"), io.StringIO()
    made.add_row("key", "all: loadBalancerReportUpdateThresholdPercentage 10")
    Console(width=36, file=file).print(made)
    assert [line.rstrip() for line in file.getvalue().splitlines()] == [
        "key  all: loadBalancerReportUpdate",
        "     ThresholdPercentage 10",
    ]


def test_a_table_without_room_for_a_word_is_printed_row_by_row() -> None:
    """Each cell after its header; nothing is torn or cut off."""
    made, file = table("id", ">score", "note", "", title="all", caption="end"), io.StringIO()
    made.add_row(Text("a" * 20), "1 M", "held\nnow", "x")
    made.add_row("b", "2 M", "", "")
    Console(width=30, file=file).print(made)
    assert [line.rstrip() for line in file.getvalue().splitlines()] == [
        "all",
        "a" * 20,
        "    score: 1 M; note: held",
        "    now; x",
        "b",
        "    score: 2 M",
        "end",
    ]


@pytest.mark.parametrize("command", ["brokers", "brokers -o wide", "bundles", "channel -o wide", "review list"])
def test_at_60_columns_no_name_is_torn(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """A bundle before its range at most, a broker after a dot at most."""
    monkeypatch.setenv("COLUMNS", "60")
    sidecar.be(review=command == "review list")
    sidecar.shop.follow_channel()
    if command == "review list":
        sidecar.run("unload", BUNDLE, "--yes", "--reason", "r")
    shown = sidecar.run(*command.split()).stdout
    assert max(map(len, shown.splitlines())) <= 60
    known = {"bundles": ["0x00000000_", "0x10000000", "pulsar:8080"], "review list": ["approve", "discard"]}
    assert {*known.get(command, BROKERS[:3])} <= set(re.split(r"[\s,]+", shown)), shown


def test_a_topic_stands_in_one_piece_at_80_columns(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bundle, state and addresses stand below it."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = sidecar.run("where", "persistent://shop/orders/created", to="none").stdout.splitlines()
    assert lines[0] == "persistent://shop/orders/created-partition-0"
    assert lines[1:5] == [
        f"  {BUNDLE}, hash 0x1a2b3c4d",
        "  broker-0.pulsar:8080",
        "  pulsar://broker-0.pulsar:6650",
        "  owned",
    ]


def test_status_says_what_exactly_stops_the_leader(sidecar: Sidecar) -> None:
    """Which brokers, or who and why; nothing where there is nothing to add."""
    sidecar.service.results["state"] = lambda state: replace(
        state, acting=False, acting_obstacle="FrozenReports", acting_detail="broker-1:8080"
    )
    said = " ".join(sidecar.run("status").stdout.split())
    assert "their reports never change: broker-1:8080)" in said
    sidecar.be(mode="recommend")
    assert "not executed)" in " ".join(sidecar.run("status").stdout.split())


def test_status_names_the_releases_of_the_others(sidecar: Sidecar) -> None:
    """After an upgrade all are the same."""
    members = [Member(id="keel-9", version="0.0.9")]
    sidecar.service.results["state"] = lambda state: replace(state, members=members)
    assert "others keel-9 (0.0.9)" in " ".join(sidecar.run("status").stdout.split())


def test_status_says_whether_the_brokers_shedding_is_off(sidecar: Sidecar) -> None:
    """Without it nobody can tell whether mode recommend means that no balancer works."""
    taken = TakeoverView(active=True, by="ann", reason="go live", wall_ms=0, namespaces=("shop/a", "b/c"), ended=None)
    ended = EndedView(by="bob", reason="release", wall_ms=0, deadman=False)

    def said(takeover: TakeoverView | None) -> str:
        sidecar.service.results["state"] = lambda state: replace(state, takeover=takeover)
        return " ".join(sidecar.run("status").stdout.split())

    assert "takeover none: the brokers shed load themselves" in said(None)
    assert "takeover only shop/a, b/c, active since 19" in said(taken) and ", by ann: go live" in said(taken)
    assert "takeover only shop/a, b/c, ended 19" in said(replace(taken, active=False, ended=ended))
    assert "by bob: release" in said(replace(taken, namespaces=[], active=False, ended=ended))


def test_brokers_that_shed_by_themselves_are_named(sidecar: Sidecar) -> None:
    """In the words of the web page."""
    assert "sheds by itself" not in " ".join(sidecar.run("brokers").stdout.split())
    sidecar.shop.cluster.model.dynamic["loadBalancerSheddingEnabled"] = "true"
    sidecar.do(sidecar.shop.turns())
    assert "sheds by itself" in " ".join(sidecar.run("brokers").stdout.split())


def test_status_says_what_it_has_not_read_yet(sidecar: Sidecar) -> None:
    """Started while the metadata store is away, it knows neither a takeover nor moves, and claims nothing."""
    sidecar.service.results["state"] = lambda state: replace(state, takeover=None, takeover_known=False, cycle=None)
    said = " ".join(sidecar.run("status").stdout.split())
    assert "takeover not known yet" in said and "ledger not known yet" in said


def test_status_names_the_bundles_of_open_intents(sidecar: Sidecar) -> None:
    """They are what `where` and `unload` need; a line only where there are some."""
    assert "intents" not in sidecar.run("status").stdout
    sidecar.service.results["state"] = lambda state: replace(state, intents=[BUNDLE, "a/b/0x0_0x1"])
    said = " ".join(sidecar.run("status").stdout.split())
    assert f"intents unfinished, of an earlier leader: {BUNDLE}, a/b/0x0_0x1 ready" in said


@pytest.mark.parametrize(("order", "field"), [("score", "score_ratio"), ("traffic", "predicted_throughput")])
def test_brokers_can_be_sorted(sidecar: Sidecar, order: str, field: str) -> None:
    """The highest first, those without a figure last, in JSON too."""
    torn = "broker-3.pulsar:8080"
    sidecar.shop.cluster.source.exclude(torn, "NotJson", "no JSON at byte 12")
    sidecar.do(sidecar.shop.turns())
    rows = json.loads(sidecar.run("brokers", "--sort", order, "-o", "json").stdout)
    figures = [row.get(field) for row in rows]
    known = [figure for figure in figures if figure is not None]
    assert known == sorted(known, reverse=True) and figures[-1] is None and len(set(known)) > 1
    wrong = sidecar.run("brokers", "--sort", "size")
    assert wrong.exit_code == 2 and "traffic" in wrong.stderr


def test_mode_without_a_word_only_reads(sidecar: Sidecar) -> None:
    """The mode in force, the ceiling and why nothing is carried out; no reason is asked for and nothing is set."""
    sidecar.be(mode="act")
    sidecar.run("mode", "recommend", "--reason", "r")
    sidecar.do(sidecar.shop.turns())
    sidecar.service.reset()
    shown = sidecar.run("mode")
    assert shown.exit_code == 0 and shown.stdout.startswith("recommend (ceiling act), not acting")
    assert json.loads(sidecar.run("mode", "-o", "json").stdout) == {"mode": "recommend", "mode_ceiling": "act"}
    assert {name for name, _ in sidecar.service.calls} <= {"state"}


def test_an_answer_of_another_release_is_said() -> None:
    """Its fields are others: the table cannot be drawn, and the message names the field and the way out."""
    with pytest.raises(CliError, match=r"`broker`.*sidecar's release") as caught:
        decoded(list[BrokerView], [{"name": "b-1"}])
    assert caught.value.code == 3


def test_another_clusters_sidecar_at_the_port_of_the_settings_is_not_asked(sidecar: Sidecar) -> None:
    """Two clusters on one machine have the same default port: the answers would be those of the other."""
    port = sidecar.url.rpartition(":")[2]
    ours = sidecar.service.state().cluster
    for cluster, code in ((ours, 0), ("pulsar-9", 3)):
        Path("port.yaml").write_text(f"cluster: {cluster}\napi: {{socket: null, port: {port}}}\n")
        assert (shown := sidecar.run("plan", "-c", "port.yaml", to="none")).exit_code == code
    assert f"belongs to cluster '{ours}', but port.yaml to cluster 'pulsar-9'; " in shown.stderr and shown.stdout == ""
    assert sidecar.run("pause", "--reason", "r", "-c", "port.yaml", to="none").exit_code == 3
    assert "pause" not in {name for name, _ in sidecar.service.calls}


@pytest.mark.parametrize(
    ("code", "changed", "over"),
    [
        ("Paused", {}, True),
        ("RecommendOnly", {"mode": "act"}, True),
        ("RecommendOnly", {"mode": "recommend"}, False),
        ("BrokersShedThemselves", {"taken_ms": 1}, True),
        ("BrokersShedThemselves", {"taken_ms": -1}, False),
        ("BrokersShedThemselves", {}, False),
    ],
)
def test_what_a_person_has_ended_is_not_told_as_in_the_way(
    sidecar: Sidecar, code: str, changed: dict[str, Any], over: bool
) -> None:
    """The obstacle is that of the last cycle; its remedy may be done already."""
    state = sidecar.shop.service.state()
    cycle = replace(state.cycle, obstacle=code) if state.cycle is not None else None
    assert cycle is not None
    taken = None
    if "taken_ms" in changed:
        at_ms = cycle.wall_ms + changed["taken_ms"]
        taken = TakeoverView(active=True, by="ann", reason="go", wall_ms=at_ms, namespaces=(), ended=None)
    shown = replace(
        state,
        **{"mode": "act", "paused": None, "acting": False, "acting_obstacle": code, "cycle": cycle, "takeover": taken}
        | {key: value for key, value in changed.items() if key == "mode"},
    )
    sidecar.service.results["state"] = lambda _: shown
    said = sidecar.run("mode").stdout
    assert ("decided again in the next cycle" in said) == over and ("not acting" in said) != over


def test_summary_says_how_often_the_sidecar_followed(sidecar: Sidecar) -> None:
    """And where the reasons of these cycles are, also if it leads now; of a sidecar that led all the time nothing."""
    assert "as a follower" not in sidecar.run("summary").stdout
    sidecar.service.results["summary"] = lambda answer: replace(answer, cycles=915, followed=775)
    said = " ".join(sidecar.run("summary").stdout.split())
    assert "as a follower 775 of 915 cycles: `moves` shows the moves of that leader; the summary of the" in said
    end = "sidecar that led at that time contains the reasons (`bundlekeel status` shows the present leader)"
    assert f"summary of the {end}" in said


def test_summary_says_whose_people_it_lists(sidecar: Sidecar) -> None:
    """What was asked of other sidecars is in their journals alone, also where this list is empty."""
    said = " ".join(sidecar.run("summary").stdout.split())
    hint = "run this on the other sidecars, too: `bundlekeel operations` lists the active requests of all"
    assert f"requests to this sidecar, and takeovers; {hint}" in said
    assert "`bundlekeel operations`" in said


def test_what_to_run_is_not_followed_by_what_stops_it(sidecar: Sidecar) -> None:
    """Names of brokers behind a command would read as its arguments."""
    code, names = "BrokersShedThemselves", "b-1:8080, b-2:8080"
    sidecar.service.results["state"] = lambda state: replace(
        state, acting=False, acting_obstacle=code, acting_detail=names
    )
    said = " ".join(sidecar.run("status").stdout.split())
    assert "the brokers shed load themselves: b-1:8080, b-2:8080; run `bundlekeel takeover`)" in said


def test_a_list_without_rows_says_what_would_make_one(sidecar: Sidecar) -> None:
    """Instead of a bare header; JSON stays a list."""
    tables = (["bundles", "-n", "shop/idle"], ["plan", "list"])
    for command, told in zip(tables, ("no bundles: ", "no plans: `bundlekeel plan` makes one"), strict=True):
        assert told in sidecar.run(*command).stdout
        assert json.loads(sidecar.run(*command, "-o", "json").stdout) == []
