"""Summarise a period, from the journal and the records of moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bundlekeel.model.codes import Code
from bundlekeel.model.response_fields import Json
from bundlekeel.model.text_format import numbered
from bundlekeel.views.summary_fields import Period, PersonView, RefusalSummary, SpellView, SummaryView

# A summary lists at most this many overloads.
_SPELLS = 10
_FIRST_ERROR = 400


def summary(
    period: Period, now_ms: int, records: Sequence[Json], moves: Sequence[Json], effects: Sequence[Json]
) -> SummaryView:
    """Return the summary of a period. `records`: journal of this sidecar; `moves`, `effects`: of all sidecars."""
    records, moves, effects = period.of(records), period.of(moves), period.of(effects)
    cycles = [record for record in records if record.get("kind") == "cycle"]
    # Count only executed plans of the leader, because a follower does not know whether its plan was executed.
    decided = [record for record in cycles if record.get("obstacle") != Code.NOT_LEADER]
    idle = [int(record["planned"]) for record in decided if record.get("planned") and not record.get("acted")]
    outcomes = Counter(str(move.get("outcome")) for move in moves)
    words: Counter[str] = Counter()
    for effect in effects:
        words[str(effect["outcome"])] += len(effect["bundles"])
    spells = sorted(_overloads(cycles), key=lambda item: item.since_ms - item.until_ms)
    times_ms = [int(record["wall_ms"]) for record in (*records, *moves)]
    return SummaryView(
        since_ms=period.since_ms,
        until_ms=period.until_ms or now_ms,
        known_since_ms=min(times_ms, default=None),
        sentence=_sentence(outcomes, words, spells, idle),
        cycles=len(cycles),
        followed=len(cycles) - len(decided),
        recommended=len(idle),
        recommended_moves=max(idle, default=0),
        moves=dict(outcomes),
        effects=dict(words),
        gain=sum(float(effect["realised"]) for effect in effects) / len(effects) if effects else None,
        obstacles=_counted([{str(record["obstacle"]): 0} for record in decided if record.get("obstacle")]),
        refusals=_counted([record.get("refused") or {} for record in cycles]),
        overloads=spells[:_SPELLS],
        people=[_person(record) for record in records if record.get("kind") == "request"],
        refused_requests=sum(
            int(record.get("attempts") or 1)
            for record in records
            if record.get("kind") == "audit" and int(record.get("status") or 0) >= _FIRST_ERROR
        ),
    )


def _sentence(outcomes: Counter[str], words: Counter[str], spells: Sequence[SpellView], idle: Sequence[int]) -> str:
    total = outcomes.total()
    parts = [numbered(total, "move") if total else "nothing moved"]
    if words.total():
        parts.append(f"{words['helped']} of {words.total()} judged helped")
    if idle:
        parts.append(f"{numbered(len(idle), 'cycle')} recommended moves that were not carried out")
    parts.append(f"a broker was overloaded {numbered(len(spells), 'time')}" if spells else "no broker was overloaded")
    return ", ".join(parts)


def _counted(counts_by_cycle: Sequence[dict[str, int]]) -> list[RefusalSummary]:
    """Return for each refusal code the number of cycles in which it occurs, and its highest count in one cycle.

    `counts_by_cycle`: for each cycle, the number of refusals by code."""
    cycles = Counter(code for counts in counts_by_cycle for code in counts)
    return [
        RefusalSummary(code=code, cycles=count, most=max(counts.get(code, 0) for counts in counts_by_cycle))
        for code, count in cycles.most_common()
    ]


def _overloads(cycles: Sequence[Json]) -> list[SpellView]:
    spells: list[SpellView] = []
    before = False
    for record in cycles:
        overloaded, at = record.get("code") == Code.OVERLOADED, int(record["wall_ms"])
        if overloaded:
            last = spells.pop() if before else None
            spells.append(
                SpellView(
                    since_ms=last.since_ms if last else at,
                    until_ms=at,
                    cycles=last.cycles + 1 if last else 1,
                    sentence=last.sentence if last else str(record["sentence"]),
                )
            )
        before = overloaded
    return spells


def _person(record: Json) -> PersonView:
    return PersonView(
        wall_ms=int(record["wall_ms"]),
        by=str(record.get("by") or ""),
        what=str(record.get("what") or ""),
        reason=str(record.get("reason") or ""),
    )
