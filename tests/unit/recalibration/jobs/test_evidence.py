"""Measures of a back-test become the document, the report and the exit codes, without Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError, StoreError
from bundlekeel.model.parameters import Parameters
from bundlekeel.model.text_format import share
from bundlekeel.recalibration.backtest import Candidate, CandidateMeasures
from bundlekeel.recalibration.backtest.choice import TriedCandidates, choose, ranked
from bundlekeel.recalibration.backtest.search import PRESENT, SearchDepth, SearchSpace
from bundlekeel.recalibration.history.ports import FoundDocument
from bundlekeel.recalibration.jobs import report
from bundlekeel.recalibration.jobs.__main__ import main, parser
from bundlekeel.recalibration.jobs.evidence import EvidenceInput, thresholds_of
from bundlekeel.recalibration.jobs.options import Options
from bundlekeel.recalibration.jobs.recalibrate import write_results
from bundlekeel.recalibration.jobs.report import Report, as_json, days_of, how_to_adopt, meanings, points_of
from bundlekeel.recalibration.jobs.rules import DayFigures, JudgedDay
from bundlekeel.recalibration.jobs.selection import check_searchable, explain_limits, find_excluded
from bundlekeel.recalibration.parquet.threshold_files import calibration_folder
from bundlekeel.recalibration.rules.thresholds import AdoptionRules, Data, Objection, checked
from bundlekeel.recalibration.rules.thresholds_json import digest_of, document_of, parsed

BASE, DEPTH = Parameters(), SearchDepth()
CREATED = 1_700_600_000_000
DAYS = tuple(f"2023-11-{number:02d}" for number in range(8, 22))
FIRST = 19_669
TRAIN, HELD = range(FIRST, FIRST + 10), {FIRST + number: DAYS[number] for number in range(10, 14)}
LOW = "avg_low_threshold_percent"
LAZY = Candidate(name=f"{LOW} 15 -> 22.5", changes={LOW: 22.5})
UNEVEN = Candidate(name=f"{LOW} 15 -> 25", changes={LOW: 25.0})
NATIVE = Candidate(name="TransferShedder", changes={"strategy": "transfer", "compat": "4.2"})
RESULTS = ((PRESENT, 0.2, 80), (LAZY, 0.2, 32), (UNEVEN, 0.3, 8), (NATIVE, 0.5, 4))
DECISION = f"{LOW} 15 -> 22.5: 60 % fewer client-seconds (95 %: 60 to 60), balance unchanged (max/mean 1.200)"


def day(imbalance: float, moves: float) -> CandidateMeasures:
    """One day: each move costs 90 client-seconds."""
    weighted = 86_400 * imbalance
    return CandidateMeasures(
        seconds=86_400, weighted=weighted, moves=moves, client_seconds=90 * moves, overloaded_minutes=4
    )


def evidence_input(reach: float = 4.0) -> EvidenceInput:
    """Return the evidence of a run with these candidates, from one initial placement."""
    results = {item.key: {(0, FIRST + at): day(*values) for at in range(14)} for item, *values in RESULTS}
    candidates = {item.key: item for item, *_ in RESULTS}
    tried = TriedCandidates(present=PRESENT.key, candidates=candidates, results=results)
    choice = choose(ranked(tried, TRAIN, "calm")[0], PRESENT, results, HELD, "calm")
    return EvidenceInput(
        base=BASE,
        choice=choice,
        tried=tried,
        held_out=HELD,
        depth=DEPTH,
        created_ms=CREATED,
        limits=explain_limits(tried, choice, BASE, HELD, DEPTH, reach),
        data=Data(from_ms=CREATED - 14 * 86_400_000, until_ms=CREATED, days=DAYS, coverage=0.999, cycles=20_160),
    )


PROPOSAL = thresholds_of(evidence_input(), pyspark="4.3.0")
OLD = Objection(code=Code.TOO_OLD, field="data.until_ms", detail="5 days old")
SILENT = replace(
    PROPOSAL, parameters={name: replace(row, value=row.previous) for name, row in PROPOSAL.parameters.items()}
)
REPORT = Report(
    document=PROPOSAL,
    objections=(),
    days=days_of(evidence_input()),
    trade_off=points_of(evidence_input()),
    judged=[JudgedDay(day=DayFigures(date=date, coverage=1.0, imbalance=0.25), verdict="good") for date in DAYS],
    left_alone={"cool_down_seconds": "its value 1 is outside of 60 to 14,400"},
)


def page(**changes: object) -> str:
    """Return the page, with the quotes of commands as a reader sees them."""
    return report.page(replace(REPORT, **changes)).replace("&#34;", '"').replace("&#39;", "'").replace("&gt;", ">")


def test_the_document_is_one_that_the_daemon_adopts() -> None:
    """It can be read again, has no objection, and its differences are paired."""
    assert parsed(json.dumps(document_of(PROPOSAL))) == PROPOSAL
    assert checked(PROPOSAL, BASE, AdoptionRules(), CREATED) == ()
    assert PROPOSAL.values == {LOW: 22.5}
    assert PROPOSAL.decision == DECISION
    assert PROPOSAL.evidence.difference.moves_per_hour.mean == pytest.approx(-2.0)
    assert PROPOSAL.evidence.difference.client_seconds_per_hour.high == pytest.approx(-180.0)
    assert PROPOSAL.evidence.previous.imbalance.mean == pytest.approx(0.2)
    assert set(PROPOSAL.evidence.strategies) == {"TransferShedder"}


def test_why_the_gain_is_not_larger() -> None:
    """One sentence per reason: candidates that cost less but balance worse, and the limit of one night."""
    assert PROPOSAL.advice == (
        "1 tested candidate with lower client-seconds an hour made another measure worse; the lowest, "
        f"{UNEVEN.name}: client-seconds an hour 30, but max/mean 1.200 -> 1.300 (part above 1: +50.0%)",
    )
    assert evidence_input(reach=3.0).limits[0] == (
        f"{LOW} 22.5 is as far as one night may change it from 15; a larger change may be better"
    )


def test_nothing_to_search_is_said_before_the_search() -> None:
    """Such a document would have no parameter, and every reader rejects it."""
    space = SearchSpace(base=BASE, requested=("threshold_percent",), reach=4.0)
    message = "nothing can be searched: threshold_percent: the active strategy avg does not read it"
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_searchable(space, SearchDepth(names=space.requested))
    with pytest.raises(ConfigError, match="proposes nothing"):
        document_of(replace(PROPOSAL, parameters={}))


def test_what_can_be_searched() -> None:
    """One parameter or a round without a grid is sufficient. No points and no rounds are an error."""
    space = SearchSpace(base=BASE, requested=(LOW, "threshold_percent"), reach=4.0)
    check_searchable(space, SearchDepth())
    check_searchable(space, SearchDepth(points=1, rounds=1))
    with pytest.raises(ConfigError, match="tries nothing"):
        check_searchable(space, SearchDepth(points=1, rounds=0))


def test_what_is_left_as_it_is_is_named_with_the_reason() -> None:
    """This covers the named parameters, or all that the active strategy reads. The report lists them."""
    space = SearchSpace(base=replace(BASE, cool_down_seconds=1.0), requested=(LOW, "threshold_percent"))
    assert find_excluded(space) == {"threshold_percent": "the active strategy avg does not read it"}
    excluded = find_excluded(replace(space, requested=()))
    assert excluded["cool_down_seconds"] == REPORT.left_alone["cool_down_seconds"]
    assert set(excluded) == {"cool_down_seconds"}
    assert "<li>cool_down_seconds: its value 1 is outside of 60 to 14,400</li>" in page()
    assert "Not searched:" not in page(left_alone={})


def test_the_page_begins_with_the_decision() -> None:
    """The first sentence says what to change and what it gains; the page loads nothing and escapes names."""
    judged = [JudgedDay(day=DayFigures(date=DAYS[3]), verdict="bad", reasons=("<b>torn</b>",))]
    text = page(judged=judged)
    assert re.search(r"<body>.*?<p[^>]*>(.*?)</p>", text, re.DOTALL)[1] == f'<b class="good">Change {DECISION}.</b>'
    assert re.findall(r"<h2>([^<]*)</h2>", text) == [
        *("Held-out days", "Why the gain is not larger", "Trade-off", "Evidence", "Thresholds", "Days")
    ]
    assert text.count("<svg") == 2
    assert not re.search(r'<script|<link|@import|src=|href="[^#]|url\([^#]', text)
    # Names of XML, not addresses.
    assert set(re.findall(r"https?:[^\"]*", text)) == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "&lt;b>torn" in text
    assert 'data-head="difference">-180 (-60.0%)<' in text
    assert "prefers-color-scheme: dark" in text


def test_the_json_has_the_content_of_the_page() -> None:
    """The decision first, then objections, days, candidates and reasons."""
    values = json.loads(json.dumps(as_json(replace(REPORT, objections=[OLD]))))
    assert list(values)[:2] == ["decision", "objections"]
    assert values["decision"] == DECISION
    assert values["objections"] == [{"code": "TooOld", "field": "data.until_ms", "detail": "5 days old"}]
    assert [item["date"] for item in values["held_out_days"]] == list(HELD.values())
    assert values["held_out_days"][0]["clients"] == pytest.approx([300.0, 120.0])
    kinds = {item["name"]: item["kind"] for item in values["trade_off"]}
    assert kinds == {"present": "present", LAZY.name: "chosen", UNEVEN.name: "tested", "TransferShedder": "native"}
    assert values["why_not_more"] == list(PROPOSAL.advice)
    assert parsed(json.dumps(values["thresholds"])) == PROPOSAL


def test_a_rejected_candidate_is_shown_next_to_the_present_settings() -> None:
    """The plot of the held-out days then shows why nothing changes, and the first sentence says so."""
    inputs = evidence_input()
    kept = replace(inputs, choice=replace(inputs.choice, candidate=PRESENT, decision="keep the present settings"))
    assert days_of(kept) == list(REPORT.days)
    text = page(document=replace(SILENT, decision=kept.choice.decision), days=days_of(kept))
    assert '<b class="">Keep the present settings.</b>' in text
    assert ">best of the search<" in text and "the best ones of the search." in text


def test_adopting_is_told_of_where_something_is_proposed() -> None:
    """Adopting unchanged thresholds would be refused with `NothingNew`."""
    text = page(document=SILENT)
    assert "thresholds adopt" not in text and 'data-head="difference"' not in text and "thresholds revert" not in text
    # The digest is that of the document as sidecars read it.
    assert f"--digest {digest_of(parsed(json.dumps(document_of(PROPOSAL))))}`" in how_to_adopt(PROPOSAL, ())
    assert "thresholds adopt" in page()


@pytest.mark.parametrize("objections", [(), (OLD,)])
def test_the_way_back_is_told_with_the_command(objections: Sequence[Objection]) -> None:
    """Page and terminal explain the trial, and how to undo an adoption."""
    _, _, after = page(objections=objections).partition("bundlekeel thresholds adopt")
    assert "<code>calibration.trial</code>" in after and "reverted automatically if balance or moves" in after
    assert '<code>bundlekeel thresholds revert --reason "..."</code>' in after
    assert "`bundlekeel thresholds revert --reason" in how_to_adopt(PROPOSAL, objections)


def test_objections_say_whether_force_helps() -> None:
    """If it helps, the page has the command and the colour of a warning; otherwise it has none."""
    text = page(objections=[OLD])
    assert re.search("bundlekeel thresholds adopt --force --reason", text)
    assert 'class="good"' not in text.partition("<section>")[0] and '<b class="warning">' in text
    both = page(objections=[OLD, replace(OLD, code=Code.IMPLAUSIBLE)])
    assert re.findall('data-head="--force helps">([a-z]+)<', both) == ["yes", "no"]
    assert "thresholds diff" in both and "thresholds adopt" not in both


def test_what_is_worse_on_held_out_days_has_no_command() -> None:
    """An operator could adopt it, but the page advises against it."""
    text = page(objections=[OLD, replace(OLD, code=Code.NOT_BETTER)])
    assert "Do not adopt it (NotBetter): " in text and "thresholds adopt" not in text


def test_what_changes_is_explained() -> None:
    """The meaning is below the name in the table, and below the decision on a terminal, for changed parameters."""
    meaning = (
        "scores may differ by this times the mean score (0 to 1); what exceeds it has a cost (see move_price) "
        "(percent points)"
    )
    assert f"{LOW}<br><small>{meaning}</small></td>" in page()
    assert meanings(PROPOSAL) == (f"{LOW}: {meaning}",)
    assert meanings(SILENT) == ()


def test_the_busiest_broker_is_compared_as_everywhere() -> None:
    """Every max/mean on the page is 1 for balanced brokers. The document stores the part above 1."""
    text = page()
    assert PROPOSAL.evidence.previous.imbalance.mean == pytest.approx(0.2)
    assert 'data-head="max/mean">1.250<' in text and 'data-head="in force">1.200<' in text
    assert 'data-head="difference">+0.000 (+0.0%)<' in text and "imbalance" not in text.lower()


def test_the_use_of_each_day_is_shown() -> None:
    """Days of the search, held-out days, and days that were left out. Steps are those of `diff`."""
    days = (*DAYS, "2023-11-22")
    text = page(judged=[JudgedDay(day=DayFigures(date=date), verdict="good") for date in days])
    used = re.findall(r'data-head="day">([\d-]+)<.*?data-head="used for">([\w ]+)<', text)
    assert used == list(zip(days, [*["search"] * 10, *["held out"] * 4, "left out"], strict=True))
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


def test_a_run_that_ends_while_it_writes_leaves_earlier_results_as_they_were(tmp_path: Path) -> None:
    """Also those of the same day: otherwise its new report would stand next to the earlier proposal."""
    start = datetime(2023, 11, 22, 2, tzinfo=UTC)
    first, second = (
        Options(history="h", out=str(tmp_path), now=start + timedelta(hours=hours), adoption=AdoptionRules())
        for hours in (0, 1)
    )
    write_results(first, evidence_input(), REPORT.judged, {})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.name for path in before} == {"report.html", "report.json", "thresholds.json"}
    # The write of report.json fails, after the write of report.html.
    (tmp_path / second.folder / "_report.json.part").mkdir(parents=True)
    with pytest.raises(StoreError):
        write_results(second, replace(evidence_input(), created_ms=CREATED + 3_600_000), REPORT.judged, {})
    assert {path: path.read_bytes() for path in before} == before
    assert calibration_folder(tmp_path).newest() == FoundDocument(
        path=f"{first.folder}/thresholds.json", data=(tmp_path / first.folder / "thresholds.json").read_bytes()
    )
