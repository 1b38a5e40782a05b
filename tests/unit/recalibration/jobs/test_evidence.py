"""Measures of a back-test become the document, the page and the exit codes, without Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.text_format import share
from bundlekeel.recalibration.backtest import Candidate, CandidateMeasures
from bundlekeel.recalibration.backtest.intervals import measures_of
from bundlekeel.recalibration.backtest.search import SearchSpace, TriedCandidates, present
from bundlekeel.recalibration.jobs import report
from bundlekeel.recalibration.jobs.__main__ import main, parser
from bundlekeel.recalibration.jobs.evidence import EvidenceInput, thresholds_of
from bundlekeel.recalibration.jobs.report import (
    ReportInputs,
    block_series,
    clients_of,
    headline,
    how_to_adopt,
    meanings,
    points_of,
    searched_of,
)
from bundlekeel.recalibration.jobs.rules import DayFigures, JudgedDay, without_hits
from bundlekeel.recalibration.jobs.selection import SearchDepth, adoptable, check_searchable, find_excluded, select
from bundlekeel.recalibration.rules.thresholds import HIT_COUNTS, AdoptionRules, Data, Objection, Thresholds, checked
from bundlekeel.recalibration.rules.thresholds_json import digest_of, document_of, parsed

BASE = Parameters()


def page(document: Thresholds, inputs: ReportInputs) -> str:
    """Return the page, with the quotes of commands as a reader sees them."""
    return report.page(document, inputs).replace("&#34;", '"').replace("&#39;", "'")


CREATED = 1_700_600_000_000
DAYS = tuple(f"2023-11-{number:02d}" for number in range(8, 22))
HELD = DAYS[-4:]


def figures(imbalance: float, moves: float) -> CandidateMeasures:
    """Return measures of six hours."""
    return CandidateMeasures(
        seconds=21_600,
        weighted=21_600 * imbalance,
        moves=moves,
        moved_sessions=90 * moves,
        thrash=moves,
        overloaded_minutes=1,
    )


LAZY = Candidate(name="lazy", changes={"avg_low_threshold_percent": 22.5})
OTHER = Candidate(name="threshold", changes={"strategy": "threshold"})
SLOW = Candidate(name="slow", changes={}, cycle_seconds=300)
RESULTS = ((present(), 0.2, 20), (LAZY, 0.2, 8), (OTHER, 0.2, 4), (SLOW, 0.2, 19))


def tried() -> TriedCandidates:
    """Return candidates with the same measures every day, in four blocks each."""
    by_key = {item.key: {day: figures(*values) for day in range(14)} for item, *values in RESULTS}
    return TriedCandidates(present=present().key, candidates={item.key: item for item, *_ in RESULTS}, results=by_key)


def evidence_input() -> EvidenceInput:
    """Return the evidence of a run with these candidates."""
    selection = select(tried(), BASE, SearchDepth(), train=range(10), held_out=range(10, 14), reach=4.0)
    return EvidenceInput(
        base=BASE,
        chosen=selection.choice.candidate,
        present=present(),
        reason=selection.choice.reason,
        blocks={item.key: {number: figures(*values) for number in range(16)} for item, *values in RESULTS},
        strategies=selection.strategies,
        held_out=HELD,
        data=Data(from_ms=CREATED - 14 * 86_400_000, until_ms=CREATED, days=DAYS, coverage=0.999, cycles=20_160),
        created_ms=CREATED,
        period_seconds=60.0,
        advice=selection.advice,
        tried=selection.values,
        unbroken={item.key: figures(*values) for item, *values in RESULTS},
    )


def test_only_thresholds_of_the_strategy_in_force_are_chosen() -> None:
    """Another strategy or cycle may be better. It is advice, and not chosen."""
    assert set(adoptable(tried()).candidates) == {present().key, LAZY.key}
    selection = select(tried(), BASE, SearchDepth(), train=range(10), held_out=range(10, 14), reach=4.0)
    assert selection.choice.candidate == LAZY
    assert selection.strategies == {"threshold": OTHER.key}
    assert selection.values == {"avg_low_threshold_percent": {22.5}}
    assert len(selection.advice) == 1
    assert "threshold" in selection.advice[0]


def test_as_far_as_one_night_goes_is_told() -> None:
    """22.5 is three steps of 2.5 from 15, the limit with a reach of three."""
    selection = select(tried(), BASE, SearchDepth(), train=range(10), held_out=range(10, 14), reach=3.0)
    assert any("as far as one night may change it" in text for text in selection.advice)


@pytest.mark.parametrize(
    ("names", "without", "message"),
    [
        (("threshold_percent",), {}, "--parameter threshold_percent: the active strategy avg has no such parameter"),
        (("split_hit_count",), dict.fromkeys(HIT_COUNTS, "why"), "not changed: split_hit_count"),
    ],
)
def test_nothing_to_search_is_said_before_the_search(
    names: tuple[str, ...], without: Mapping[str, str], message: str
) -> None:
    """Such a document would have no parameter, and every reader rejects it."""
    space = SearchSpace(base=BASE, names=names, without=without, reach=4.0)
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_searchable(space, SearchDepth(names=names))
    with pytest.raises(ConfigError, match="proposes nothing"):
        document_of(thresholds_of(replace(evidence_input(), chosen=present(), tried={}), pyspark="4.3.0"))


def test_what_is_left_as_it_is_is_named_with_the_reason() -> None:
    """This covers the named parameters, or all that the active strategy reads. The report lists them."""
    why = without_hits(60.0, 10.0)
    names = ("avg_low_threshold_percent", "split_hit_count", "threshold_percent", "cool_down_seconds")
    space = SearchSpace(base=replace(BASE, cool_down_seconds=1.0), names=names, without=why, reach=4.0)
    reasons = find_excluded(space)
    assert reasons == {
        "split_hit_count": "hit counts depend on the time between two cycles: 10 s as recorded, 60 s in the "
        "back-test; with --period 10 they are searched",
        "threshold_percent": "the active strategy avg does not read it",
        "cool_down_seconds": "its value 1 is outside of 60 to 14,400",
    }
    assert list(find_excluded(replace(space, names=()))) == [*("split_hit_count", "cool_down_seconds")]
    text = page(thresholds_of(evidence_input(), pyspark="4.3.0"), ReportInputs(left_alone=reasons))
    table = text.partition("<h2>Thresholds</h2>")[2].partition("</section>")[0]
    assert all(f"<li>{name}: {reason}</li>" in table for name, reason in reasons.items())


def test_nothing_is_left_as_it_is() -> None:
    """There is no list if cycles are as long as recorded, and every value is in its range."""
    assert not without_hits(60.0, 55.0)
    assert not find_excluded(SearchSpace(base=BASE, reach=4.0))
    assert "Not searched:" not in page(thresholds_of(evidence_input(), pyspark="4.3.0"), ReportInputs())


def test_what_can_be_searched() -> None:
    """One parameter or a round without a grid is sufficient. No points and no rounds are an error."""
    space = SearchSpace(base=BASE, names=("avg_low_threshold_percent", "threshold_percent"), reach=4.0)
    check_searchable(space, SearchDepth())
    check_searchable(space, SearchDepth(points=1, rounds=1))
    with pytest.raises(ConfigError, match="tries nothing"):
        check_searchable(space, SearchDepth(points=1, rounds=0))


def test_the_document_is_one_that_the_daemon_adopts() -> None:
    """It can be read again, has no objection, and its differences are paired."""
    document = thresholds_of(evidence_input(), pyspark="4.3.0")
    assert parsed(json.dumps(document_of(document))) == document
    assert checked(document, BASE, AdoptionRules(), CREATED) == ()
    assert document.values == {"avg_low_threshold_percent": 22.5}
    assert document.evidence.difference.moves_per_hour.mean == pytest.approx(-2.0)
    assert document.evidence.difference.moves_per_hour.high < 0
    assert document.evidence.previous.imbalance.mean == pytest.approx(0.2)
    assert document.evidence.previous.thrash_per_day.mean == pytest.approx(80)


def test_other_changes_are_named_where_there_are_some() -> None:
    """The evidence of one change names the others."""
    low, both = "avg_low_threshold_percent", Candidate(name="both", changes=LAZY.changes | {"split_hit_count": 9})
    alone = thresholds_of(evidence_input(), pyspark="4.3.0").parameters[low].evidence
    assert alone == "moves an hour 3.33 -> 1.33 (-60.0%), max/mean 1.200 -> 1.200 (part above 1: +0.0%)"
    inputs = replace(
        evidence_input(),
        chosen=both,
        blocks=evidence_input().blocks | {both.key: evidence_input().blocks[LAZY.key]},
        unbroken={},
    )
    evidence = thresholds_of(inputs, pyspark="4.3.0").parameters[low].evidence
    assert evidence == f"with the other changes: {alone}"


def test_intervals_hold_the_mean_and_shrink_when_paired() -> None:
    """Blocks differ much, but in the same way before and after: the difference is certain, the means are not."""
    before = {number: figures(0.1 + 0.02 * number, 10 + number) for number in range(12)}
    after = {number: figures(0.1 + 0.02 * number, 9 + number) for number in range(12)}
    plain, apart = measures_of(after, seed=1), measures_of(after, seed=1, before=before)
    assert plain.imbalance.low < plain.imbalance.mean < plain.imbalance.high
    assert apart.imbalance.mean == pytest.approx(0, abs=1e-12)
    assert apart.moves_per_hour.low == pytest.approx(-1 / 6)
    assert apart.moves_per_hour.high == pytest.approx(-1 / 6)
    assert measures_of(after, seed=1) == plain
    assert measures_of({}, seed=1).imbalance.mean == 0


def test_the_page_stands_alone() -> None:
    """The page has every section, loads nothing, and escapes names."""
    inputs = evidence_input()
    selection = select(tried(), BASE, SearchDepth(), train=range(10), held_out=range(10, 14), reach=4.0)
    judged = [JudgedDay(day=DayFigures(date=date, coverage=1.0), verdict="good") for date in DAYS]
    judged[3] = JudgedDay(day=DayFigures(date=DAYS[3]), verdict="bad", reasons=("<b>torn</b>",))
    slopes = {
        f"per_{name}": 1e-6 for name in ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")
    }
    rows = [{"broker": "b<1>", "resource": "cpu", "blind": False, "limit": 800.0, "base": 3.0, "error": 0.2} | slopes]
    figures_of = ("bytes", "bytes_peak", "growth", "clients", "moves_per_day", "clients_moved_per_day")
    space = {"name": "tenant/<ns>", "volatility": None} | dict.fromkeys(figures_of, 2e6)
    report_inputs = ReportInputs(
        judged=judged,
        points=points_of(inputs, selection),
        blocks=block_series(inputs, [f"{date}" for date in HELD for _ in range(4)]),
        capacity=rows,
        week=[float(hour) for hour in range(168)],
        spaces=[space],
        reason=inputs.reason,
        clients=clients_of(inputs),
    )
    document = thresholds_of(inputs, pyspark="4.3.0")
    text = page(document, report_inputs)
    # The digest is that of the document as sidecars read it.
    assert f"--digest {digest_of(parsed(json.dumps(document_of(document))))}</code>" in text
    assert re.findall(r"<h2>([^<]*)</h2>", text) == [
        *("Thresholds", "Evidence", "Candidates", "Days", "The week", "Namespaces", "Capacity", "Advice")
    ]
    assert text.count("<svg") == 4
    evidence = "On 4 days that the search did not use: moves an hour 3.33 -> 1.33 (-60.0%), max/mean 1.200 -> 1.200"
    assert f"Proposed: avg_low_threshold_percent 15 -> 22.5.</b> {evidence}" in text.replace("&gt;", ">")
    assert not re.search(r"\d %(?! of a core)", text.partition("<body>")[2]), "one form"
    assert "<p>Cluster (unknown), created 20" in text
    assert 'class="number" data-head="limit">800 % of a core<' in text
    assert 'class="number" data-head="resource"' not in text
    assert ">3.33</td>" in text
    assert not re.search(r'<script|<link|@import|src=|href="[^#]|url\([^#]', text)
    # Names of XML, not addresses.
    assert set(re.findall(r"https?:[^\"]*", text)) == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert all(name in text for name in ("&lt;b&gt;torn", "b&lt;1&gt;", "tenant/&lt;ns&gt;"))
    assert "prefers-color-scheme: dark" in text


def test_adopting_is_told_of_where_something_is_proposed() -> None:
    """Adopting unchanged thresholds would be refused with `NothingNew`."""
    proposal = thresholds_of(evidence_input(), pyspark="4.3.0")
    rows = {name: replace(row, value=row.previous) for name, row in proposal.parameters.items()}
    text = page(replace(proposal, parameters=rows), ReportInputs())
    assert '<b class="">Nothing to change.</b> The thresholds in force stay: ' in text
    assert "thresholds adopt" not in text and '"proposed, unbroken"' in text and 'data-head="difference"' not in text
    assert "thresholds revert" not in text
    assert "thresholds adopt" in page(proposal, ReportInputs())
    assert ["were not compared" in page(proposal, ReportInputs(compared=compared)) for compared in (True, False)] == [
        0,
        1,
    ]


OLD = Objection(code=Code.TOO_OLD, field="data.until_ms", detail="5 days old")


@pytest.mark.parametrize("objections", [(), (OLD,)])
def test_the_way_back_is_told_with_the_command(objections: Sequence[Objection]) -> None:
    """Page and terminal explain the trial, and how to undo an adoption."""
    proposal = thresholds_of(evidence_input(), pyspark="4.3.0")
    text = page(proposal, ReportInputs(objections=objections))
    _, _, after = text.partition("bundlekeel thresholds adopt")
    assert "<code>calibration.trial</code>" in after and "reverted automatically if balance or moves" in after
    assert '<code>bundlekeel thresholds revert --reason "..."</code>' in after
    assert "`bundlekeel thresholds revert --reason" in how_to_adopt(proposal, objections)
    assert "Adopt a proposal if there are no objections, if the unbroken run loses no balance" in text


def test_objections_say_whether_force_helps() -> None:
    """If it helps, their section ends with the command; otherwise it has none."""
    proposal = thresholds_of(evidence_input(), pyspark="4.3.0")
    text = page(proposal, ReportInputs(objections=[OLD]))
    head, _, section = text.partition("<h2>Objections</h2>")
    assert "thresholds diff" in head and "thresholds adopt" not in head
    command = 'bundlekeel thresholds adopt --force --reason "..." --digest [0-9a-f]{16}</code>'
    back = '[.] Once adopted.*<code>bundlekeel thresholds revert --reason "..."</code>\\s*</p>'
    assert re.search(f"{command}{back}", section.partition("</section>")[0])
    both = page(proposal, ReportInputs(objections=[OLD, replace(OLD, code=Code.IMPLAUSIBLE)]))
    assert re.findall('data-head="--force helps">([a-z]+)<', both) == ["yes", "no"]
    assert "thresholds diff" in both and "thresholds adopt" not in both


@pytest.mark.parametrize("code", [Code.NOT_BETTER, Code.WORSE_UNBROKEN])
def test_what_is_worse_on_held_out_days_has_no_command(code: Code) -> None:
    """An operator could adopt it, but the page advises against it."""
    text = page(
        thresholds_of(evidence_input(), pyspark="4.3.0"), ReportInputs(objections=[OLD, replace(OLD, code=code)])
    )
    assert f"Do not adopt it ({code.value}): " in text and "thresholds adopt" not in text


def test_the_head_says_first_that_sidecars_refuse() -> None:
    """The sentence has the colour of a warning and each code once; without an objection, that of success."""
    proposal = thresholds_of(evidence_input(), pyspark="4.3.0")
    codes = (Code.TOO_OLD, Code.TOO_OLD, Code.OTHER_INTERVAL)
    text = page(proposal, ReportInputs(objections=[replace(OLD, code=code) for code in codes], reason="moves -60.0%"))
    state = "Not adopted automatically by the sidecars (TooOld, OtherInterval): avg_low_threshold_percent 15 -> 22.5"
    assert f'<b class="warning">{state}.</b> On 4 days that' in text.replace("&gt;", ">")
    assert 'class="good"' not in text.partition("<section>")[0]
    first = proposal.parameters["avg_low_threshold_percent"]
    two = replace(proposal, parameters=proposal.parameters | {"split_hot_share": replace(first, value=0.5)})
    text = page(two, ReportInputs(objections=[replace(OLD, code=Code.IMPLAUSIBLE)]))
    assert "Not to be adopted (Implausible): avg_low_threshold_percent 15 -> 22.5, split_hot_share " in text.replace(
        "&gt;", ">"
    )


def test_the_head_has_the_figures_of_the_unbroken_run() -> None:
    """Blocks cannot show a slow loss of balance, so a gain in blocks alone may be wrong."""
    text = headline(thresholds_of(evidence_input(), pyspark="4.3.0"), (), "moves -60.0%")[1]
    sentence = "On 4 days that the search did not use: moves -60.0%. In one unbroken run over them: "
    assert text == f"{sentence}moves an hour 3.33 -> 1.33 (-60.0%), max/mean 1.200 -> 1.200 (part above 1: +0.0%)"


def test_what_changes_is_explained() -> None:
    """The meaning is below the name in the table, and below the head on a terminal, for changed parameters only."""
    proposal = thresholds_of(evidence_input(), pyspark="4.3.0")
    meaning = (
        "scores may differ by this times the mean score (0 to 1); what exceeds it has a cost (see move_price) "
        "(percent points)"
    )
    assert f"avg_low_threshold_percent<br><small>{meaning}</small></td>" in page(proposal, ReportInputs())
    assert meanings(proposal) == (f"avg_low_threshold_percent: {meaning}",)


def test_the_busiest_broker_is_compared_as_everywhere() -> None:
    """Every max/mean on the page is 1 for balanced brokers. The document stores the part above 1."""
    inputs = evidence_input()
    selection = select(tried(), BASE, SearchDepth(), train=range(10), held_out=range(10, 14), reach=4.0)
    judged = [JudgedDay(day=DayFigures(date=DAYS[0], imbalance=0.25), verdict="good")]
    report_inputs = ReportInputs(
        judged=judged, points=points_of(inputs, selection), blocks=block_series(inputs, HELD * 4)
    )
    document = thresholds_of(inputs, pyspark="4.3.0")
    text = page(document, report_inputs)
    assert document.evidence.previous.imbalance.mean == pytest.approx(0.2)
    assert 'data-head="max/mean">1.250<' in text and 'data-head="in force">1.200<' in text
    assert "lazy: max/mean 1.2000, 1.33 moves per hour" in {point.label for point in report_inputs.points}
    assert ">max/mean of score (1 is even)<" in text
    assert (
        'data-head="difference">+0.000 (+0.0%)<' in text and "imbalance" not in text.lower() and "0.2</td>" not in text
    )


def test_the_days_of_the_search_can_be_compared_with_those_held_out() -> None:
    """The page shows the use of each day, and the result of the proposal on both kinds of days."""
    inputs = replace(evidence_input(), searched={LAZY.key: {0: figures(0.1, 6)}, present().key: {0: figures(0.3, 24)}})
    selection = select(tried(), BASE, SearchDepth(), train=range(10), held_out=range(10, 14), reach=4.0)
    days = (*DAYS, "2023-11-22")
    judged = [JudgedDay(day=DayFigures(date=date), verdict="good") for date in days]
    report_inputs = ReportInputs(
        judged=judged, points=points_of(inputs, selection), searched=searched_of(inputs), clients=clients_of(inputs)
    )
    document = thresholds_of(inputs, pyspark="4.3.0")
    text = page(document, report_inputs)
    used = re.findall(r'data-head="day">([\d-]+)<.*?data-head="used for">([\w ]+)<', text)
    assert used == list(zip(days, [*["search"] * 10, *["held out"] * 4, "left out"], strict=True))
    row = text.partition(">moves an hour<")[2].partition("</tr>")[0]
    cells = dict(re.findall(r'data-head="([^"]*)">([^<]*)<', row))
    assert (cells["in force, days of the search"], cells["proposed, days of the search"]) == ("4", "1")
    clients = text.partition("clients moved per hour<")[2].partition("</tr>")[0]
    assert 'data-head="proposed, days of the search">90<' in clients
    assert "Days of the search: they chose the proposal" in text
    # Without a change there is no comparison.
    assert searched_of(replace(inputs, chosen=present())) == {}


def test_the_cost_in_clients_is_shown() -> None:
    """The page shows producers and consumers that moves disconnect: 90 per move here."""
    text = page(thresholds_of(evidence_input(), pyspark="4.3.0"), ReportInputs(clients=clients_of(evidence_input())))
    row = text.partition("clients moved per hour<")[2].partition("</tr>")[0]
    cells = dict(re.findall(r'data-head="([^"]*)">([^<]*)<', row))
    assert (cells["in force"], cells["proposed"], cells["difference"]) == ("300", "120", "-180 (-60.0%)")
    assert (cells["proposed, unbroken"], cells["threshold"]) == ("120", "60")


def test_figures_of_then_and_of_the_back_test_are_told_apart() -> None:
    """The balancer planned at its own interval. A coarser back-test moves less with the same thresholds."""
    judged = [JudgedDay(day=DayFigures(date=DAYS[0], moves=4), verdict="good")]
    document = thresholds_of(replace(evidence_input(), period_seconds=1800.0), pyspark="4.3.0")
    text = page(document, ReportInputs(judged=judged))
    assert "Planned again every 1,800 s. The result holds for balancers that plan as often." in text
    assert "A sidecar that plans more often, as with counters, acts sooner than this shows" in text
    assert "Moves are those of the balancer on that day" in text


def test_how_much_was_planned_of_each_day_is_shown() -> None:
    """A held-out day with few plans is weak evidence. An omitted day has none. Steps are those of `diff`."""
    judged = [JudgedDay(day=DayFigures(date=date, cycles=1440), verdict="good") for date in DAYS[-2:]]
    text = page(thresholds_of(evidence_input(), pyspark="4.3.0"), ReportInputs(judged=judged, plans={DAYS[-1]: 1_437}))
    assert re.findall(r'data-head="plans">([^<]*)<', text) == ["", "1,437"]
    assert re.findall(r'data-head="steps">([^<]*)<', text) == ["3.0"]


def test_shares() -> None:
    """A value that was 0 before has no percentage."""
    assert share(-1, 4) == "-25.0%"
    assert share(-0.0001, 4) == "+0.0%"
    assert share(0, 0) == "as before"
    assert share(2, 0) == "+2 from 0"


def test_the_command_without_a_history_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and a sentence, also for settings without history and for a missing file."""
    out = ("--out", str(tmp_path))
    assert main(out) == 2
    settings = tmp_path / "settings.yaml"
    settings.write_text("mode: observe\nmetadata_store: zk:127.0.0.1:2181\n")
    assert main((*out, "--settings", str(settings))) == 2
    assert main((*out, "--settings", str(tmp_path / "none.yaml"))) == 2
    assert "error: no history: pass --history URI, or --settings FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        ("--strategy", "best"),
        ("--parameter", "strategy"),
        ("--days", "0"),
        ("--leave-out", "yesterday"),
        ("--conf", "memory=1"),
    ],
)
def test_wrong_options_are_refused(wrong: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Argparse refuses them with exit code 2."""
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args(["--out", "x", *wrong])
    assert wrong[0] in capsys.readouterr().err


def test_help_tells_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """The help also contains examples."""
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = capsys.readouterr().out
    assert "TooLittleHistory" in text
    assert "spark-submit" in text
