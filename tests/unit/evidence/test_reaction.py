"""evidence/reaction: values read from a run, the stored results, and the page generated from them."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from xml.etree import ElementTree

import httpx
import pytest

from dev.cluster.spec import broker_info
from dev.traffic import Traffic, TrafficSpec
from evidence.reaction.contenders import CONTENDERS, Contender
from evidence.reaction.figures import (
    Sample,
    Spread,
    changes,
    even_since,
    loads_by_owner,
    max_over_mean,
    median_of,
    owners_of,
    rates,
)
from evidence.reaction.observer import Observer
from evidence.reaction.page import (
    END,
    MARK,
    NEWER,
    QUIET,
    load,
    page,
    path_of,
    results_of,
    save,
    summary_row,
    with_medians,
)
from evidence.reaction.plot import chart
from evidence.reaction.run import Moved, Result

BY_NAME = {contender.name: contender for contender in CONTENDERS}


def _sample(at: float, owners: dict[str, str], loads: tuple[float, ...] = (1.0, 1.0, 1.0)) -> Sample:
    return Sample(at=at, loads=dict(zip("abc", loads, strict=True)), owners=owners)


def _result(**changed: object) -> Result:
    result = Result(
        contender="ours-modular-fast",
        number=1,
        finished="2026-11-21T00:00:00Z",
        revision="abc1234",
        start_ratio=3.0,
        end_ratio=1.1,
        within_seconds=900.0,
        even_seconds=12.0,
        moves=[_moved(0.4), _moved(1.2)],
        noise=Spread.of([0.5]),
        acked=1000,
        lost=0,
        duplicated=0,
        rate_before=4700.0,
    )
    return replace(result, **changed)  # type: ignore[arg-type]


def _moved(gap: float) -> Moved:
    return Moved(bundle="t/n/0x0_0x1", source="a", destination="b", at_seconds=3.0, gap_seconds=gap)


def test_everything_on_one_broker_is_as_many_times_the_mean_as_there_are_brokers() -> None:
    assert max_over_mean([9.0, 0.0, 0.0]) == 3.0
    assert max_over_mean([2.0, 2.0, 2.0]) == 1.0
    assert max_over_mean([0.0, 0.0]) == 0.0


def test_only_a_broker_that_does_not_listen_owns_nothing() -> None:
    """Rule: a broker that does not respond in time may still own its bundles."""
    spec = TrafficSpec(service_url="pulsar://127.0.1.1:1", admin_url="http://127.0.1.1:1")
    with socket.create_server(("127.0.1.1", 0)) as server, httpx.Client(timeout=0.1) as http:
        broker = broker_info(1, server.getsockname()[1], 1, "bind")
        observer = Observer(cast(Traffic, SimpleNamespace(spec=spec, prepare=list)), [broker], "local")
        assert observer._owned(http, broker) is None
        server.close()
        assert observer._owned(http, broker) == []


def test_load_is_what_clients_got_through_given_to_the_owner() -> None:
    per_topic = rates({"x": 150, "y": 40, "z": 7}, {"x": 100, "y": 20}, 10.0)
    assert per_topic == {"x": 5.0, "y": 2.0, "z": 0.7}
    owned = loads_by_owner(per_topic, {"x": "1", "y": "2", "z": "3"}, {"1": "a", "2": "b"}, "abc")
    assert owned == {"a": 5.0, "b": 2.0, "c": 0.0}


@pytest.mark.parametrize("claims", [{"a": ["1"], "b": ["1"]}, {"b": ["1"], "a": ["1"]}])
def test_of_two_that_claim_a_bundle_the_newcomer_has_it(claims: dict[str, list[str]]) -> None:
    assert owners_of(claims, {"1": "a"}) == {"1": "b"}


def test_a_move_is_a_change_of_owner_also_when_nobody_had_it_between() -> None:
    samples = [
        _sample(1, {"1": "a", "2": "a", "3": "a"}),
        _sample(2, {"1": "b", "3": "a"}),
        _sample(3, {"1": "b", "3": "a"}),
        _sample(4, {"1": "b", "2": "c", "3": "a"}),
    ]
    result = [(item.bundle, item.source, item.destination, item.left, item.seen) for item in changes(samples)]
    assert result == [("1", "a", "b", 1, 2), ("2", "a", "c", 1, 4)]


def test_unloaded_and_taken_again_by_the_same_broker_is_a_move_too() -> None:
    samples = [_sample(1, {"1": "a"}), _sample(2, {}), _sample(3, {"1": "a"}), _sample(4, {"1": "a"})]
    assert [(item.source, item.destination, item.seen) for item in changes(samples)] == [("a", "a", 3)]


def test_even_counts_from_the_last_time_it_became_so() -> None:
    uneven, even = (6.0, 1.0, 1.0), (2.0, 2.0, 2.0)
    samples = [_sample(at, {}, loads) for at, loads in enumerate((uneven, even, uneven, even, even))]
    assert even_since(samples) == 3
    assert even_since(samples[:3]) is None
    assert even_since([_sample(0, {}, (0.0, 0.0, 0.0))]) is None


def test_a_spread_of_few_values_has_its_worst_as_95th_percentile() -> None:
    assert Spread.of([3.0, 1.0, 2.0, 9.0]) == Spread(count=4, median=2.5, p95=9.0, worst=9.0)
    assert Spread.of(range(1, 101)).p95 == 95
    assert Spread.of([]) == Spread(count=0, median=0.0, p95=0.0, worst=0.0)


def test_not_in_time_is_worse_than_any_number() -> None:
    assert median_of([10.0, None, 30.0]) == 30.0
    assert median_of([10.0, None, None]) is None
    assert median_of([10.0, 20.0]) == 20.0
    assert median_of([]) is None


def test_kept_results_come_back_and_those_that_do_not_count_are_not_taken(tmp_path: Path) -> None:
    contender = BY_NAME["ours-modular-fast"]
    save(_result(), path_of(contender, 1, raw=tmp_path))
    save(_result(number=2, start_ratio=2.79), path_of(contender, 2, raw=tmp_path))
    save(_result(number=3, rate_before=4200.0), path_of(contender, 3, raw=tmp_path))
    assert load(path_of(contender, 1, raw=tmp_path)) == _result()
    assert load(path_of(contender, 4, raw=tmp_path)) is None
    assert results_of(contender, raw=tmp_path) == [_result()]


def test_a_row_has_the_medians_of_its_runs() -> None:
    results = [_result(), _result(number=2, even_seconds=20.0), _result(number=3, even_seconds=None, moves=[])]
    row = summary_row(BY_NAME["ours-modular-fast"], results)
    assert row == ("Bundlekeel", "modular", "fast statistics", "20", "2", "0.80", "1.20", "1.20", "0", "3")


def test_a_row_of_one_that_never_got_there_says_how_far_it_came() -> None:
    results = [_result(even_seconds=None, end_ratio=ratio) for ratio in (1.4, 1.9, 1.5)]
    assert summary_row(BY_NAME["native-avg-stock"], results)[3] == "not within 900, ended at 1.40 / 1.50 / 1.90"


def test_a_row_of_two_runs_has_the_figures_of_both_in_their_order() -> None:
    """Two have no median: either figure alone would be a choice."""
    stuck = _result(even_seconds=None, end_ratio=3.0, moves=[])
    row = summary_row(BY_NAME["native-transfer-stock"], [stuck, _result(number=2, even_seconds=None, end_ratio=2.18)])
    assert row[3:6] == ("not within 900, ended at 3.00 / 2.18", "0 / 2", "0.00 / 0.80")
    row = summary_row(BY_NAME["ours-modular-stock"], [_result(), _result(number=2, even_seconds=9.0)])
    assert row[3:6] == ("12 / 9", "2", "0.80")


def test_the_page_shows_who_was_run_with_what_was_set_and_nobody_else(tmp_path: Path) -> None:
    save(_result(contender="native-avg-fast", lost=3), path_of(BY_NAME["native-avg-fast"], 1, raw=tmp_path))
    text = page(tmp_path)
    assert "| AvgShedder | modular | fastest they allow | 12 | 2 | 0.80 | 1.20 | 1.20 | 3 | 1 |" in text
    assert "`maxUnloadPercentage=0.5`" in text
    assert "`loadBalancerLoadSheddingStrategy=AvgShedder`" in text
    assert "| TransferShedder |" not in text


def test_other_pages_show_the_same_medians_and_keep_their_own_text(tmp_path: Path) -> None:
    save(_result(), path_of(BY_NAME["ours-modular-fast"], 1, raw=tmp_path))
    output = tmp_path / "shown.md"
    output.write_text(f"before\n\n{MARK}\nold\n{END}\n\nafter\n")
    row = "| Bundlekeel | modular | fast statistics | 12 | 2 | 0.80 | 0 | 1 |"
    text = with_medians(output, tmp_path)
    assert row in text and "old" not in text and text.startswith("before\n\n") and text.endswith("\n\nafter\n")
    output.write_text(text)
    assert with_medians(output, tmp_path) == text
    output.write_text("no marks")
    with pytest.raises(ValueError, match="not enough values"):
        with_medians(output, tmp_path)


def test_every_load_manager_meets_ours_and_a_native_shedder_with_both_settings() -> None:
    result = {(item.title, item.mode, item.fast, item.counters, item.sensor) for item in CONTENDERS}
    assert len(result) == len(CONTENDERS) == 15
    assert len(BY_NAME) == len(CONTENDERS)


@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda item: item.name)
def test_only_native_contenders_have_settings_and_stock_ones_no_speed_settings(contender: Contender) -> None:
    names = set(contender.broker_settings)
    assert not (contender.ours and names)
    choice = {"loadBalancerLoadSheddingStrategy", "loadBalancerLoadPlacementStrategy", "maxUnloadPercentage"}
    # Without it ThresholdShedder would look at none of these brokers.
    minimum = "loadBalancerBundleUnloadMinThroughputThreshold"
    assert contender.fast or (names - choice) <= ({minimum} if contender.title == "ThresholdShedder" else set())


def test_runs_on_pulsar_5_have_a_section_of_their_own(tmp_path: Path) -> None:
    contender = BY_NAME["native-avg-stock"]
    assert "5.0" not in page(tmp_path)
    save(_result(even_seconds=12.0), path_of(contender, 1, NEWER.variant, tmp_path))
    assert results_of(contender, raw=tmp_path) == []
    section = page(tmp_path).partition("## The step on Pulsar 5.0\n")[2].partition("\n## ")[0]
    assert "| AvgShedder | modular | as its authors set it | 12 | 2 |" in section


def test_a_step_under_a_quiet_leader_has_a_section_of_its_own(tmp_path: Path) -> None:
    contender = BY_NAME["ours-modular-stock"]
    assert "running and quiet" not in page(tmp_path)
    for number, even in ((1, 12.0), (2, None)):
        result = _result(number=number, even_seconds=even, end_ratio=1.06 * number, revision="abc")
        save(result, path_of(contender, number, QUIET.variant, tmp_path))
    assert results_of(contender, raw=tmp_path) == []
    assert "| Bundlekeel | modular | stock | 3.0 | 12 / - | 900 | 1.06 / 2.12 | 2 | abc |" in page(tmp_path)


def test_the_chart_has_a_line_for_each_contender_that_was_run() -> None:
    ours, native = BY_NAME["ours-modular-fast"], BY_NAME["native-avg-stock"]
    falling = _result(timeline=[(0.5, 3.0), (5.0, 3.0), (60.0, 2.0), (900.0, 1.0)])
    drawn = chart([(ours, [falling]), (native, [falling, falling]), (BY_NAME["native-avg-fast"], [])])
    paths = [path.attrib for path in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}path")]
    # Those of the legend are not clipped.
    lines = [path for path in paths if "clip-path" in path and re.findall("[ML]", path["d"]) == ["M", "L", "L"]]
    assert ["stroke-dasharray" in path["style"] for path in lines] == [False, True]
    ends = [tuple(map(float, point)) for point in re.findall(r"[ML] (\S+) (\S+)", lines[0]["d"])]
    assert [x for x, _ in ends] == sorted(x for x, _ in ends)
    assert [y for _, y in ends] == sorted(y for _, y in ends)
    assert "AvgShedder, modular, as its authors set it" in drawn
    assert "fastest" not in drawn


def test_the_chart_shows_the_middle_run() -> None:
    """Not the first one: that may be the worst of a native shedder."""
    native = BY_NAME["native-transfer-stock"]
    idle, half, even = (
        _result(even_seconds=at, end_ratio=ratio, timeline=[(0.5, 3.0), (900.0, ratio)])
        for at, ratio in ((None, 3.0), (None, 2.0), (600.0, 1.2))
    )
    assert chart([(native, [idle, half, even])]) == chart([(native, [half])]) != chart([(native, [idle])])
