"""Did it help? Predicted and realised effects of moves, joined once both reports show them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.plan import BrokerLoad, Move, Plan, Verdict
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.planning import effects
from bundlekeel.planning.effects import HELPED, NO_BENEFIT, WORSE, Effect, EffectRecords, EffectRules
from bundlekeel.planning.ledger import Ledger, open_entries
from tests.support import builders
from tests.support.builders import bundle_name, report, snapshot

A, B, C = "a:8080", "b:8080", "c:8080"
T0 = 1_790_000_000_000


def move(bundle: str = bundle_name(0), source: str = A, target: str = B) -> Move:
    return builders.move(bundle, source, target)


def plan(before: dict[str, float], after: dict[str, float] | None = None) -> Plan:
    """A plan that says only how loaded brokers are and will be."""
    loads = tuple(
        BrokerLoad(
            broker=broker,
            score_before=score,
            score_after=(after or before)[broker],
            msg_rate_before=0,
            msg_rate_after=0,
            throughput_before=0,
            throughput_after=0,
            bundles_before=0,
            bundles_after=0,
        )
        for broker, score in before.items()
    )
    verdict = Verdict(code=Code.BALANCED, sentence="")
    return Plan(
        wall_ms=T0,
        strategy="avg",
        placement="",
        seed=0,
        snapshot_digest="",
        verdict=verdict,
        brokers=(),
        moves=(),
        refusals=(),
        loads=loads,
        mean=sum(before.values()) / len(before),
    )


def picture(owners: dict[str, str], *, at: int = T0 + 300_000, start: int = 1, reported: int = 0) -> Snapshot:
    owned: dict[str, dict[str, float]] = {A: {}, B: {}, C: {}}
    for bundle, broker in owners.items():
        owned[broker][bundle] = 0.1
    reports = [
        report(b, bundles, last_update=reported or at - 1000, start_timestamp=start) for b, bundles in owned.items()
    ]
    return snapshot(reports, wall_ms=at)


def build_records(*moves: Move) -> EffectRecords:
    """Moves of one plan, predicted to bring 0.8 and 0.2 to 0.5 each."""
    before, after = {A: 0.8, B: 0.2, C: 0.5}, {A: 0.5, B: 0.5, C: 0.5}
    return effects.begun(EffectRecords(), moves or (move(),), plan(before, after), T0)


def judged(
    now: dict[str, float], book: EffectRecords | None = None, **more: object
) -> tuple[EffectRecords, tuple[Effect, ...]]:
    """Judge with these scores now, the bundle being at its target."""
    current = picture({bundle_name(0): B}, **more)  # type: ignore[arg-type]
    return effects.judge(book or build_records(), Ledger(), current, plan(now), EffectRules())


@pytest.mark.parametrize(
    ("now", "word", "realised"),
    [
        ({A: 0.5, B: 0.5, C: 0.5}, HELPED, 0.3),
        ({A: 0.7, B: 0.3, C: 0.5}, HELPED, 0.1),
        ({A: 0.78, B: 0.22, C: 0.5}, NO_BENEFIT, 0.02),
        ({A: 0.8, B: 0.2, C: 0.5}, NO_BENEFIT, 0.0),
        ({A: 0.84, B: 0.2, C: 0.46}, NO_BENEFIT, -0.04),
        ({A: 0.1, B: 0.95, C: 0.45}, WORSE, -0.15),
    ],
)
def test_words(now: dict[str, float], word: str, realised: float) -> None:
    book, (result,) = judged(now)
    assert (result.word, result.source, result.target) == (word, A, B)
    assert result.predicted == pytest.approx(0.3) and result.realised == pytest.approx(realised)
    assert not book.open and book.judged == (result,)
    assert word.replace("_", " ") in result.record()["sentence"]


def test_growth_of_traffic_is_nobody_s_fault() -> None:
    """Everybody carries half as much again: the move still helped."""
    _, (result,) = judged({A: 0.75, B: 0.75, C: 0.75})
    assert result.word == HELPED and result.realised == pytest.approx(0.3)


@pytest.mark.parametrize("owner", [A, B, C])
@pytest.mark.parametrize("at_ms", [T0 - 600_000, T0 - 599_999, T0 + 100_000])
def test_moves_are_not_judged_by_loads_that_pulsar_moved(owner: str, at_ms: int) -> None:
    """A split or merge of segments at a broker of the move, after it or so shortly before it that the averages of its
    bundles did not show it. At other brokers it does not matter."""
    current = picture({bundle_name(0): B, bundle_name(1): owner})
    changed = {bundle_name(1): at_ms, "t/gone/0x00000000_0xffffffff": T0}
    book, result = effects.judge(
        build_records(), Ledger(), current, plan({A: 0.8, B: 0.2, C: 0.5}), EffectRules(), changed
    )
    assert not book.open and len(book.pairs) == len(result)
    assert [item.word for item in result] == ([NO_BENEFIT] if owner == C or at_ms == T0 - 600_000 else [])


def test_not_before_both_reports_show_it() -> None:
    current = picture({bundle_name(0): B})
    ledger = open_entries(Ledger(), [move()], current, T0)
    book, result = effects.judge(build_records(), ledger, current, plan({A: 0.8, B: 0.2, C: 0.5}), EffectRules())
    assert result == () and len(book.open) == 1
    other = open_entries(Ledger(), [move(bundle_name(7), C, B)], current, T0)
    book, result = effects.judge(build_records(), other, current, plan({A: 0.8, B: 0.2, C: 0.5}), EffectRules())
    assert result == () and len(book.open) == 1, "another move to the same broker is on its way"


@pytest.mark.parametrize("more", [{"start": T0 + 10}, {"reported": T0 - 10}])
def test_what_cannot_be_told_is_not_judged(more: dict[str, int]) -> None:
    """A broker restarted meanwhile, or its books closed by the clock without a report."""
    book, result = judged({A: 0.9, B: 0.9, C: 0.1}, **more)
    assert result == () and not book.open


@pytest.mark.parametrize(
    ("more", "reported"),
    [
        ({}, True),
        ({"start": T0 + 30_000}, False),
        ({"start": T0}, True),
        ({"reported": T0 + 60_000}, False),
        ({"reported": T0 + 60_001}, True),
    ],
)
def test_moves_of_one_pair_are_judged_from_the_first_to_the_last(more: dict[str, int], reported: bool) -> None:
    before, after = {A: 0.8, B: 0.2, C: 0.5}, {A: 0.5, B: 0.5, C: 0.5}
    book = effects.begun(build_records(), (move(bundle_name(1)),), plan(before, after), T0 + 60_000)
    current = picture({bundle_name(0): B, bundle_name(1): B}, **more)
    _, result = effects.judge(book, Ledger(), current, plan(after), EffectRules())
    assert [(item.begun_ms, item.at_ms) for item in result] == [(T0, T0 + 300_000)] * reported


def test_what_was_taken_back_is_forgotten_after_a_day() -> None:
    day, useless = effects.FORGET_MS, {A: 0.8, B: 0.2, C: 0.5}
    book = replace(build_records(), reverted=(("x", T0),))
    for age, remaining in ((day - 1, (("x", T0),)), (day, ())):
        assert judged(useless, book, at=T0 + age)[0].reverted == remaining
    (pair,) = judged(useless)[0].pairs
    for age, count in ((day - 1, 2), (day, 1)):
        again = judged(useless, replace(build_records(), pairs=(pair,)), at=pair.at_ms + age)[0]
        assert again.pairs[0].useless == count


def test_a_bundle_that_is_elsewhere_by_now_proves_nothing() -> None:
    current = picture({bundle_name(0): C})
    assert effects.judge(build_records(), Ledger(), current, plan({A: 0.9, B: 0.9, C: 0.1}), EffectRules())[1] == ()


def test_a_move_that_came_to_nothing_does_not_spoil_the_others() -> None:
    """Two moves of a pair, one of them refused: the other one is judged."""
    book = effects.came_to_nothing(build_records(move(), move(bundle_name(1))), bundle_name(1))
    assert judged({A: 0.5, B: 0.5, C: 0.5}, book)[1][0].bundles == (bundle_name(0),)


def test_several_moves_of_a_pair_are_one_effect() -> None:
    """A report shows only their sum."""
    current = picture({bundle_name(0): B, bundle_name(1): B})
    book = build_records(move(), move(bundle_name(1)))
    _, result = effects.judge(book, Ledger(), current, plan({A: 0.5, B: 0.5, C: 0.5}), EffectRules())
    assert [len(effect.bundles) for effect in result] == [2]


def test_later_moves_of_the_same_brokers_change_what_is_expected() -> None:
    """The source gave more to a third one before it settled: it is expected to be lower than first predicted."""
    book = effects.begun(
        build_records(),
        (move(bundle_name(5), A, C),),
        plan({A: 0.5, B: 0.5, C: 0.1}, {A: 0.4, B: 0.5, C: 0.2}),
        T0 + 1000,
    )
    assert [item.source_after for item in book.open] == [0.4, 0.4]


def test_small_gains_prove_nothing() -> None:
    """Reports are off by more than that anyhow."""
    book = effects.begun(EffectRecords(), (move(),), plan({A: 0.5, B: 0.2, C: 0.5}, {A: 0.495, B: 0.3, C: 0.5}), T0)
    assert judged({A: 0.6, B: 0.6, C: 0.1}, book)[1] == ()


def test_a_useless_pair_rests_and_one_that_helps_is_forgiven() -> None:
    """The third time in a row; once rested, one more failure is enough."""
    book, rules = EffectRecords(), EffectRules(quarantine_after=3, quarantine_ms=60_000)
    useless, good = {A: 0.8, B: 0.2, C: 0.5}, {A: 0.5, B: 0.5, C: 0.5}

    def once(book: EffectRecords, now: dict[str, float], minute: int) -> EffectRecords:
        at = T0 + minute * 60_000
        book = effects.begun(book, (move(),), plan({A: 0.8, B: 0.2, C: 0.5}, {A: 0.5, B: 0.5, C: 0.5}), at)
        return effects.judge(book, Ledger(), picture({bundle_name(0): B}, at=at + 30_000), plan(now), rules)[0]

    book = once(once(book, useless, 1), useless, 2)
    assert book.quarantined(T0) == {}
    book = once(book, useless, 3)
    until = T0 + 3 * 60_000 + 30_000 + 60_000
    assert book.quarantined(until - 1) == {(A, B): until} and book.quarantined(until) == {}
    book = once(book, useless, 6)
    assert (A, B) in book.quarantined(T0 + 6 * 60_000 + 31_000)
    assert once(book, good, 9).pairs == ()


def test_taken_back_once() -> None:
    before, result = judged({A: 0.1, B: 0.95, C: 0.45})
    moves = {bundle_name(0): move()}
    book, back = effects.reversions(before, result, moves, T0)
    assert [(item.source, item.target, item.rule) for item in back] == [(B, A, "revert")]
    assert effects.reversions(book, result, moves, T0 + 1)[1] == ()
    fine = (replace(result[0], word=NO_BENEFIT),)
    assert effects.reversions(before, fine, moves, T0)[1] == ()


def test_the_book_survives_a_change_of_leader() -> None:
    book = replace(build_records(), judged=judged({A: 0.5, B: 0.5, C: 0.5})[1], reverted=(("x", 1),))
    assert msgspec.json.decode(msgspec.json.encode(book), type=EffectRecords) == book


def test_the_journal_tells_what_happened_in_short() -> None:
    one = Effect(
        source=A, target=B, bundles=("x",), at_ms=7, begun_ms=5, predicted=1 / 3, realised=-2 / 3, word=NO_BENEFIT
    )
    line = one.record()
    assert (line["predicted"], line["realised"], line["begun_ms"], line["wall_ms"]) == (0.33333, -0.66667, 5, 7)
    assert line["sentence"].startswith(f"1 move {A} -> {B}: no benefit, the peak of the two went up by 66.7%")
    assert replace(one, bundles=("x", "y")).record()["sentence"].startswith("2 moves ")
    assert "went down by 0.0%" in replace(one, realised=0.0).record()["sentence"]


def test_nothing_is_told_of_brokers_without_load() -> None:
    """There is no mean to compare with."""
    assert judged({A: 0.0, B: 0.0, C: 0.0}) == (EffectRecords(), ())


def test_a_bundle_that_moves_on_is_not_judged() -> None:
    """Both brokers of the first move have reported it, but the bundle is on its way to a third one."""
    current = picture({bundle_name(0): B})
    ledger = open_entries(Ledger(), [move(source=B, target=C)], current, T0)
    ledger = replace(ledger, baselines=tuple(item for item in ledger.baselines if item.broker == C))
    book, result = effects.judge(build_records(), ledger, current, plan({A: 0.5, B: 0.5, C: 0.5}), EffectRules())
    assert result == () and len(book.open) == 1
