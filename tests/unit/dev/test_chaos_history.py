"""The checker of histories: what was allowed passes, and each thing that must not happen is found with its evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chaos import Attempt, Disturbance, History, Intent, OperatorRequest, Record, Stop, Term, judge
from tests.support.chaos.history import Kind, Rules

X, Y = "t/ns/0x00000000_0x40000000", "t/ns/0x40000000_0x80000000"
B1, B2, B3 = "b1:8080", "b2:8080", "b3:8080"
RULES = Rules(cool_down_seconds=100.0, stayed_seconds=20.0)


def attempt(sent: float, verdict: str = "ok", *, bundle: str = X, member: str = "A", verb: str = "unload") -> Attempt:
    return Attempt(verb=verb, bundle=bundle, member=member, sent=sent, verdict=verdict)  # type: ignore[arg-type]


def record(started: float, landed_on: str, *, bundle: str = X, outcome: str = "done", intent: str = "") -> Record:
    return Record(
        bundle=bundle, source=B1, landed_on=landed_on, outcome=outcome, started=started, at=started + 3.0, intent=intent
    )


def one_move(**changes: object) -> History:
    """X moved from B1 to B2 by the leader A at 10, with nothing wrong."""
    whole = History(
        attempts=(attempt(10.1, "failed"), attempt(10.2)),
        intents=(Intent(bundle=X, begun=10.0, ended=13.0, id="1.1"),),
        terms=(Term(epoch=1, member="A", begun=0.0),),
        records=(record(9.9, B2, intent="1.1"),),
        first={X: B1, Y: B1},
        final={X: B2, Y: B1},
        rules=RULES,
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def kinds(history: History) -> list[Kind]:
    return [violation.kind for violation in judge(history)]


def test_a_move_by_the_book() -> None:
    """A redirect, then the call: one effective call, recorded, and the owner as recorded."""
    assert judge(one_move()) == []


@pytest.mark.parametrize("first", ["ok", "unknown"])
def test_a_second_call_behind_one_that_may_have_worked(first: str) -> None:
    (result,) = judge(one_move(attempts=(attempt(10.1, first), attempt(10.9, "failed"))))
    assert (result.kind, result.bundle, result.at) == (Kind.TWO_CALLS, X, 10.9)
    assert len(result.evidence) == 3
    assert "TwoCallsForOneIntent" in str(result)


def test_calls_after_certain_failures_are_no_repetition() -> None:
    assert kinds(one_move(attempts=tuple(attempt(10.0 + n, "failed") for n in range(3)))) == []


@pytest.mark.parametrize("sent", [5.0, 20.0])
def test_a_call_outside_its_intent(sent: float) -> None:
    assert kinds(one_move(attempts=(attempt(10.2), attempt(sent, "failed")))) == [Kind.NO_INTENT]


def test_a_call_of_somebody_who_never_led() -> None:
    assert kinds(one_move(attempts=(attempt(10.2, member="B"),))) == [Kind.OUTSIDE_LEADERSHIP]


def test_claims_need_leadership_but_no_intent_of_their_own() -> None:
    ended = (Term(epoch=1, member="A", begun=0.0, ended=11.0),)
    late = attempt(12.0, verb="claim")
    assert kinds(one_move(attempts=(attempt(10.2), late), terms=ended)) == [Kind.OUTSIDE_LEADERSHIP]
    assert kinds(one_move(attempts=(attempt(10.2), replace(late, sent=10.9)), terms=ended)) == []


@pytest.mark.parametrize(("sent", "allowed"), [(30.9, True), (31.1, False)])
def test_a_second_after_it_continued_nothing_may_be_sent(sent: float, allowed: bool) -> None:
    """Stopped through the end of its term: judged by when it could know."""
    history = one_move(
        attempts=(attempt(sent),),
        intents=(Intent(bundle=X, begun=10.0, ended=40.0, id="1.1"),),
        terms=(Term(epoch=1, member="A", begun=0.0, ended=20.0), Term(epoch=2, member="B", begun=21.0)),
        stops=(Stop(member="A", at=12.0, until=30.0), Stop(member="B", at=12.0, until=99.0)),
        records=(record(9.9, B2, intent="1.1"),),
    )
    assert kinds(history) == ([] if allowed else [Kind.OUTSIDE_LEADERSHIP])


def test_a_stop_long_after_the_end_is_no_excuse() -> None:
    history = one_move(
        terms=(Term(epoch=1, member="A", begun=0.0, ended=5.0),), stops=(Stop(member="A", at=8.0, until=11.0),)
    )
    assert set(kinds(history)) == {Kind.OUTSIDE_LEADERSHIP}


def test_requests_bind_what_begins_after_them() -> None:
    pause, pin = OperatorRequest(kind="pause", since=7.0), OperatorRequest(kind="pin", since=7.0, bundle=X)
    assert kinds(one_move(requests=(pause, pin))) == [Kind.AGAINST_PAUSE, Kind.AGAINST_PIN]
    assert kinds(one_move(requests=(replace(pin, bundle=Y),))) == []
    assert kinds(one_move(requests=(replace(pause, until=9.0),))) == []
    assert kinds(one_move(requests=(replace(pause, since=8.5),))) == [], "it need not be known everywhere at once"


CORDON = OperatorRequest(kind="cordon", since=7.0, broker=B2)


@pytest.mark.parametrize(
    ("operator_request", "crime"),
    [
        (CORDON, Kind.AGAINST_CORDON),
        (replace(CORDON, kind="drain"), Kind.AGAINST_DRAIN),
        (OperatorRequest(kind="exclusion", since=7.0, bundle=X), Kind.AGAINST_EXCLUSION),
        (OperatorRequest(kind="exclusion", since=7.0, bundle="t/ns"), Kind.AGAINST_EXCLUSION),
        (OperatorRequest(kind="exclusion", since=7.0, broker=B1), Kind.AGAINST_EXCLUSION),
        (OperatorRequest(kind="pause", since=7.0, bundle="t"), Kind.AGAINST_PAUSE),
        (OperatorRequest(kind="pause", since=7.0, broker=B1), Kind.AGAINST_PAUSE),
        (OperatorRequest(kind="pause", since=7.0, broker=B2), Kind.AGAINST_PAUSE),
        (replace(CORDON, since=8.5), None),
        (replace(CORDON, until=9.0), None),
        (replace(CORDON, broker=B1), None),
        (replace(CORDON, broker=B3), None),
        (OperatorRequest(kind="exclusion", since=7.0, bundle=Y), None),
        (OperatorRequest(kind="exclusion", since=7.0, bundle="t/n"), None),
        (OperatorRequest(kind="pause", since=7.0, broker=B3), None),
    ],
)
def test_requests_about_brokers_and_scopes(operator_request: OperatorRequest, crime: Kind | None) -> None:
    """Nothing comes to a cordoned or draining broker, though it may leave; nothing excluded or paused moves.
    Where it was to go is said to the first broker only."""
    to_b2 = (replace(attempt(10.1, "failed"), destination=B2), attempt(10.2))
    assert kinds(one_move(attempts=to_b2, requests=(operator_request,))) == ([] if crime is None else [crime])


def test_a_drain_need_not_wait_for_the_cool_down() -> None:
    back = two_moves(50.0)
    leaves = replace(back.records[1], source=B2)
    history = replace(back, records=(back.records[0], leaves))
    drain = OperatorRequest(kind="drain", since=40.0, broker=B2)
    assert kinds(replace(history, requests=(drain,))) == []
    assert kinds(replace(history, requests=(replace(drain, broker=B3),))) == [Kind.MOVED_TWICE]
    assert kinds(replace(history, requests=(replace(drain, until=50.0),))) == [Kind.MOVED_TWICE]


def two_moves(apart: float, *, outcome: str = "done", landed: str = B2) -> History:
    at = 10.0 + apart
    return one_move(
        attempts=(attempt(10.0), attempt(at)),
        intents=(Intent(bundle=X, begun=10.0, ended=12.0, id="1"), Intent(bundle=X, begun=at, ended=at + 2, id="2")),
        records=(record(9.9, landed, outcome=outcome, intent="1"), record(at, B3, intent="2")),
        final={X: B3},
    )


def test_a_bundle_rests_after_it_moved() -> None:
    assert kinds(two_moves(99.0)) == [Kind.MOVED_TWICE]
    assert kinds(two_moves(101.0)) == []
    assert kinds(two_moves(50.0, outcome="unknown", landed="")) == [Kind.MOVED_TWICE]


def test_one_that_stayed_rests_shorter() -> None:
    assert kinds(two_moves(21.0, outcome="landed_elsewhere", landed=B1)) == []
    assert kinds(two_moves(19.0, outcome="landed_elsewhere", landed=B1)) == [Kind.MOVED_TWICE]


def test_what_was_done_is_recorded() -> None:
    assert kinds(one_move(records=(), final={})) == [Kind.NOT_RECORDED]
    open_still = (Intent(bundle=X, begun=10.0, id="1.1"),)
    assert kinds(one_move(records=(), intents=open_still, final={})) == [], "it will be, by whoever settles it"


def test_each_move_is_recorded_once() -> None:
    twice = (record(9.9, B2, intent="1.1"), record(10.0, B2, intent="1.1"))
    assert kinds(one_move(records=twice)) == [Kind.RECORDED_TWICE]


def test_the_owners_are_those_of_the_journal() -> None:
    assert kinds(one_move(final={X: B3, Y: B1})) == [Kind.OTHER_OWNER]
    assert kinds(one_move(final={X: "", Y: B1})) == [Kind.OTHER_OWNER]
    assert kinds(one_move(final={X: B2, Y: B2})) == [Kind.OTHER_OWNER], "nobody says that Y moved"
    assert kinds(one_move(final={X: B3}, disturbances=(Disturbance(broker=B2, at=50.0),))) == []
    assert kinds(one_move(final={X: B3}, disturbances=(Disturbance(broker=B2, at=5.0),))) == [Kind.OTHER_OWNER]
    nobody_knows = (record(9.9, "", outcome="unknown", intent="1.1"),)
    assert kinds(one_move(final={X: B3}, records=nobody_knows)) == []


def test_no_intent_stands_for_ever() -> None:
    rules = replace(RULES, open_seconds=30.0)
    stands = (Intent(bundle=X, begun=10.0, id="1.1"),)
    assert kinds(one_move(intents=stands, rules=rules, end=41.0)) == [Kind.LEFT_OPEN]
    assert kinds(one_move(intents=stands, rules=rules, end=39.0)) == []
    # A term that ends leaves the whole time to the next one.
    terms = (Term(epoch=1, member="A", begun=0.0, ended=39.0), Term(epoch=2, member="B", begun=45.0))
    assert kinds(one_move(intents=stands, rules=rules, terms=terms, end=74.0)) == []
    assert kinds(one_move(intents=stands, rules=rules, terms=terms, end=76.0)) == [Kind.LEFT_OPEN]


@st.composite
def lawful(draw: st.DrawFn) -> History:
    """Leaders one after the other; each bundle moves by the book, with the rest it needs in between."""
    at, attempts, intents, records, terms = 0.0, [], [], [], []
    owner = {X: B1, Y: B1}
    rested = {X: 0.0, Y: 0.0}
    for epoch in range(1, draw(st.integers(1, 4)) + 1):
        member, progress = draw(st.sampled_from("AB")), at
        for number in range(draw(st.integers(0, 3))):
            bundle, broker = draw(st.sampled_from([X, Y])), draw(st.sampled_from([B1, B2, B3]))
            at = max(at, rested[bundle]) + draw(st.floats(0.5, 20.0))
            id_ = f"{epoch}.{number}"
            redirects = [attempt(at + 0.1 * n, "failed", bundle=bundle, member=member) for n in range(2)]
            call = attempt(at + 0.5, draw(st.sampled_from(["ok", "unknown"])), bundle=bundle, member=member)
            attempts += [*redirects[: draw(st.integers(0, 2))], call]
            intents.append(Intent(bundle=bundle, begun=at, ended=at + 2, id=id_))
            records.append(record(at, broker, bundle=bundle, intent=id_))
            owner[bundle], rested[bundle] = broker, at + 101
            at += 3
        terms.append(Term(epoch=epoch, member=member, begun=progress, ended=at))
        at += draw(st.floats(1.0, 5.0))
    return History(
        attempts=attempts, intents=intents, terms=terms, records=records, first={X: B1, Y: B1}, final=owner, rules=RULES
    )


@given(lawful())
def test_lawful_histories_pass(history: History) -> None:
    assert judge(history) == []


@given(lawful(), st.data())
def test_each_crime_is_found(history: History, data: st.DataObject) -> None:
    """One thing made wrong in a lawful history is found under its name."""
    effective = [item for item in history.attempts if item.may_count]
    if not effective:
        return
    drawing = data.draw(st.sampled_from(effective))
    intent = next(i for i in history.intents if i.bundle == drawing.bundle and i.covers(drawing.sent, 0.0))
    crimes = {
        Kind.TWO_CALLS: replace(history, attempts=[*history.attempts, replace(drawing, sent=drawing.sent + 0.5)]),
        Kind.NO_INTENT: replace(history, intents=[item for item in history.intents if item is not intent]),
        Kind.OUTSIDE_LEADERSHIP: replace(
            history, attempts=[replace(item, member="C") if item is drawing else item for item in history.attempts]
        ),
        Kind.AGAINST_PAUSE: replace(history, requests=[OperatorRequest(kind="pause", since=intent.begun - 2.5)]),
        Kind.AGAINST_PIN: replace(
            history, requests=[OperatorRequest(kind="pin", since=intent.begun - 2.5, bundle=drawing.bundle)]
        ),
        Kind.NOT_RECORDED: replace(history, records=[r for r in history.records if r.intent != intent.id]),
        Kind.OTHER_OWNER: replace(history, final=dict(history.final) | {drawing.bundle: "b9:8080"}),
    }
    for kind, crime in crimes.items():
        assert kind in kinds(crime), kind
