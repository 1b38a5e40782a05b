"""Order candidates (settings to test), and choose the one to propose: best on the days of the search, and confirmed on
held-out days, which the search did not use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from bundlekeel.model.text_format import level, max_mean
from bundlekeel.recalibration.backtest import intervals
from bundlekeel.recalibration.backtest.measures import ByRunDay, Candidate, CandidateMeasures, RunDay
from bundlekeel.recalibration.rules.thresholds import EQUAL, KEPT, MEASURES, TITLES, BootstrapInterval

Day = TypeVar("Day", int, str)
# By `calibration.prefer`: the measure that a proposal must lower. It must not raise another one of `KEPT`.
GOALS: Final = {"calm": "client_seconds_per_hour", "balance": "imbalance"}
# A candidate is ranked by the chance that this many other samples of days confirm it, as it is used for weeks.
TIMES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedCandidates:
    """The tested candidates (settings) and their results, by `Candidate.key`. `present`: key of the present
    settings."""

    present: str
    candidates: Mapping[str, Candidate] = field(default_factory=dict)
    results: Mapping[str, ByRunDay] = field(default_factory=dict)

    def with_results(self, candidates: Iterable[Candidate], results: Mapping[str, ByRunDay]) -> TriedCandidates:
        """Return a copy with additional candidates and their results."""
        added = {candidate.key: candidate for candidate in candidates}
        return replace(self, candidates={**self.candidates, **added}, results={**self.results, **results})


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The candidate to propose, or the present settings if no candidate is better.

    `decision`: what to change and what that gains on the held-out days, or why nothing changes. `best`: the candidate
    that was best on the days of the search.
    """

    candidate: Candidate
    decision: str
    best: Candidate


def split_days(days: Collection[Day], held_out: float = 0.3) -> tuple[tuple[Day, ...], tuple[Day, ...]]:
    """Return the days (numbers or dates) to search by, and the held-out days, at least one of each.

    The last days are held out, so that a result of earlier days is tested on later ones. `held_out`: share of the days.
    Raises ValueError if there are fewer than two days.
    """
    ordered = sorted(set(days))
    if len(ordered) < 2:
        raise ValueError(f"{len(ordered)} days cannot be divided")
    count = min(max(1, round(held_out * len(ordered))), len(ordered) - 1)
    return tuple(ordered[:-count]), tuple(ordered[-count:])


def of_days(results: ByRunDay, days: Collection[int], placement: int | None = None) -> dict[RunDay, CandidateMeasures]:
    """Return only the results of these days, of the run from this initial placement; None: of all runs."""
    return {
        key: measures
        for key, measures in results.items()
        if key[1] in days and (placement is None or key[0] == placement)
    }


def ranked(tried: TriedCandidates, days: Collection[int], prefer: str, *, seed: int = 0) -> list[Candidate]:
    """Return the tested candidates (settings), best first.

    The first criterion is the likely saving. Among candidates that save nothing, the present settings are first. Then
    the order is by less imbalance, fewer changes, and key.
    """

    def worth(key: str) -> tuple[float, bool, float, int, str]:
        total = CandidateMeasures.sum(of_days(tried.results[key], days).values())
        saving = likely_saving(tried, key, days, prefer, seed=seed)
        return -saving, key != tried.present, total.imbalance, len(tried.candidates[key].changes), key

    return [tried.candidates[key] for key in sorted(tried.results, key=worth)]


def likely_saving(tried: TriedCandidates, key: str, days: Collection[int], prefer: str, *, seed: int = 0) -> float:
    """Return the share of the goal's measure that a candidate saves, times the chance that other days confirm it
    `TIMES` times; 0: it saves nothing.

    The chance ranks a certain small gain above a large gain that may be luck, because one additional move changes all
    later moves.
    """
    before, after = (of_days(tried.results[item], days) for item in (tried.present, key))
    shared, name = set(before) & set(after), GOALS[prefer]
    share = intervals.saved(before, after, shared, name, seed=seed).mean
    return share * intervals.chance(before, after, shared, name, seed=seed) ** TIMES if share > 0 else 0.0


def choose(
    candidate: Candidate,
    present: Candidate,
    results: Mapping[str, ByRunDay],
    held_out: Collection[int],
    prefer: str,
    *,
    seed: int = 0,
) -> Choice:
    """Return the candidate if the held-out days confirm it, else the present settings.

    Only the best candidate of the search is compared on the held-out days: a choice among many would make these days
    part of the search. It must not be worse there (`intervals.worse`), and must certainly lower the goal's measure.

    Args:
        candidate: the best candidate on the days of the search.
        present: the present settings.
        results: measures of both by run and day, by key.
        held_out: days since 1970-01-01.
        prefer: `calibration.prefer`.
        seed: seed of the resampling.

    Raises:
        ValueError: there is no held-out day, or no counted time on them.
    """
    before, after = (of_days(results[item.key], held_out) for item in (present, candidate))
    if not before:
        raise ValueError("no held-out day to judge by")
    if not CandidateMeasures.sum(before.values()).seconds:
        raise ValueError("no counted time on the held-out days")
    name, keep = GOALS[prefer], "keep the present settings"
    if candidate.key == present.key:
        text = f"{keep}: no tested value lowered {TITLES[name]} without making another measure worse"
        return Choice(candidate=present, decision=text, best=candidate)
    why = worse(before, after)
    gain = intervals.saved(before, after, set(before) & set(after), name, seed=seed)
    if not why and len(held_out) < 2:
        why = "one day cannot confirm a gain"
    if not why and gain.low <= 0:
        why = f"a gain is not certain: {_percent(gain, name)}"
    if why:
        text = f"{keep}: {candidate.name} was best in the search, but not on {len(held_out)} held-out days: {why}"
        return Choice(candidate=present, decision=text, best=candidate)
    then, now = (CandidateMeasures.sum(days.values()) for days in (before, after))
    rest = _others(then, now, name)
    return Choice(candidate=candidate, decision=f"{candidate.name}: {_percent(gain, name)}, {rest}", best=candidate)


def _percent(gain: BootstrapInterval, name: str) -> str:
    """Return a saving as text, for example `28 % fewer client-seconds (95 %: 12 to 41)`."""
    word, noun = ("less", "imbalance") if name == "imbalance" else ("fewer", "client-seconds")
    ends = f"{100 * gain.low:.0f} to {100 * gain.high:.0f}"
    return f"{100 * gain.mean:.0f} % {word} {noun} ({100 * intervals.LEVEL:.0f} %: {ends})"


def _others(before: CandidateMeasures, after: CandidateMeasures, goal: str) -> str:
    """Return the measure that the goal does not name: the balance, or the client-seconds."""
    if goal == "imbalance":
        return "not more client-seconds"
    if abs(after.imbalance - before.imbalance) <= EQUAL * before.imbalance:
        return f"balance unchanged (max/mean {level(after.imbalance)})"
    return max_mean(before.imbalance, after.imbalance)


def worse(before: ByRunDay, after: ByRunDay) -> str:
    """Return the first measure in which `after` is worse than `before`, with both values; empty: not worse."""
    then, now = (
        intervals.means(intervals.sums_of(CandidateMeasures.sum(days.values()))[:, None]) for days in (before, after)
    )
    for name, higher in zip(KEPT, intervals.worse(then, now).tolist(), strict=True):
        if higher:
            old, new = float(then[MEASURES.index(name)]), float(now[MEASURES.index(name)])
            return max_mean(old, new) if name == "imbalance" else f"{TITLES[name]} {old:.4g} -> {new:.4g}"
    return ""
