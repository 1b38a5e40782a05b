"""Measure what calibration gains: `python -m evidence.calibrated [--seeds 1 2 3] [--days 14] [--again] [--write]`.

A world is a generated cluster with its traffic. Each seed gives one world; they differ in size, noise, spikes and
growth. The search of the nightly job reads the first days of a world and proposes settings. The last days were held
out: they compare the proposal with the default settings by imbalance (time mean of max/mean - 1) and moves per day.
Both settings are simulated with the same traffic and the same first placement of bundles, in three ways: in blocks of
some hours, as in the search; in one run over all held-out days, as on a real cluster; and in one run with one snapshot
per minute, as stock clusters make them. `--folder` stores the result of each world, so an interrupted run continues
from there. `--again` judges the proposals in the page instead of searching, which needs an hour of one core for ten
worlds. It replaces the results of the named seeds only. With `--period 60` the search also reads snapshots of a stock
cluster (about half an hour of one core per world), and `--write` then replaces only the last section of the page.
Exit code 1: in blocks, the imbalance of a world is more than 1 % worse than with the defaults, or the median world
saves less than 15 % of the moves.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

import numpy as np

from bundlekeel.model.load import Ints
from bundlekeel.recalibration.backtest import Candidate, CandidateMeasures, backtest, unbroken
from bundlekeel.recalibration.backtest.choice import choose, split_days
from bundlekeel.recalibration.backtest.search import SearchSpace, present, search, total
from bundlekeel.recalibration.backtest.traffic import Averaging, Chunk, chunks
from bundlekeel.recalibration.jobs.selection import adoptable
from bundlekeel.recalibration.rules.thresholds import EQUAL, AdoptionRules
from dev.history_model import World, dense
from dev.history_worlds import steps
from dev.markdown import table

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "calibration.md"
FEWER: Final = 0.15
# The nightly job divides history into blocks of the same length.
BLOCK_S: Final = 6 * 3600
WARM_S: Final = 3600
RUNS: Final = ("blocks", "unbroken", "stock")
# Title of the page's section on worlds for which both the search and the comparison read snapshots of stock clusters.
OWN: Final = "Searched and judged on snapshots of 60 s"
# Parameters that the default strategy reads, without split limits and weights, which have no effect in these worlds.
NAMES: Final = (
    *("avg_low_threshold_percent", "move_price", "avg_low_floor_percent", "swing_worth"),
    *("max_unload_ratio", "min_unload_share", "cool_down_seconds"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of the run: days, seconds between two snapshots, values tried per parameter, rounds of refinement,
    candidates kept per round, number of nightly proposals in a row, and seconds between two snapshots of a stock
    cluster.
    """

    days: int
    period_seconds: int
    points: int
    rounds: int
    keep: int
    nights: int
    stock_seconds: int = 60

    @property
    def stock(self) -> bool:
        """Whether the search also reads snapshots at the interval of stock clusters."""
        return self.period_seconds == self.stock_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Imbalance and moves per day on the held-out days: with the default settings, and with the calibrated ones."""

    imbalance: float
    calibrated_imbalance: float
    moves: float
    calibrated_moves: float

    @staticmethod
    def of(before: CandidateMeasures, after: CandidateMeasures) -> Pair:
        """Return the measures before and after as a pair."""
        return Pair(
            imbalance=before.imbalance,
            calibrated_imbalance=after.imbalance,
            moves=before.moves_per_day,
            calibrated_moves=after.moves_per_day,
        )

    @property
    def worse(self) -> float:
        """Return the relative change of imbalance; below 0: better."""
        return self.calibrated_imbalance / self.imbalance - 1 if self.imbalance else 0.0

    @property
    def fewer(self) -> float:
        """Return the share of the moves that the calibrated settings save."""
        return 1 - self.calibrated_moves / self.moves if self.moves else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The result of one world: its properties, the proposal, and the comparison of default and calibrated settings in
    blocks, in one run (unbroken), and in one run with the stock interval of snapshots (None: no change, or not run).
    `candidates`: number of settings that the search tried; 0: the proposal was read from the page.
    """

    seed: int
    about: str
    candidates: int
    held_out: int
    blocks: Pair
    unbroken: Pair | None
    stock: Pair | None
    changes: Mapping[str, Any]
    reason: str
    cpu_seconds: float


def world_of(seed: int, size: Size) -> World:
    """Return the world of a seed, with all its properties drawn at random."""
    rng = np.random.default_rng([seed, 2024])
    return World(
        seed=seed,
        days=size.days,
        brokers=int(rng.integers(4, 13)),
        bundles=int(rng.integers(96, 321)),
        period_seconds=size.period_seconds,
        load=float(rng.uniform(0.25, 0.5)),
        daily=float(rng.uniform(0.2, 0.7)),
        weekly=float(rng.uniform(0.0, 0.5)),
        growth=float(rng.uniform(-0.005, 0.02)),
        noise=float(rng.uniform(0.05, 0.3)),
        zipf=float(rng.uniform(0.5, 1.0)),
        spiky=int(rng.integers(0, 4)),
        unequal=float(rng.choice([0.0, 0.0, 0.3])),
    )


def about(world: World) -> str:
    """Return the properties of the world as text."""
    text = f"{world.brokers} x {world.bundles}, noise {world.noise:.2f}, zipf {world.zipf:.2f}, {world.spiky} spiky"
    return f"{text}, brokers differ" if world.unequal else text


def owners_of(world: World) -> list[Ints]:
    """Return each bundle's owner at the start of every block with the default settings, from the first day on."""
    every = BLOCK_S // world.period_seconds
    # No splits, because the two halves of a split bundle would not exist in the next block.
    whole = replace(world, params=replace(world.params, split_enabled=False))
    owners: list[Ints] = []
    for number, step in enumerate(steps(whole)):
        if number % every == 0:
            assert step.inputs is not None
            bundles = step.inputs.snapshot.bundles
            owners.append(bundles.owner[np.argsort(np.array(bundles.names))])
    return owners


def blocks_of(world: World, owners: Sequence[Ints]) -> Iterator[Chunk]:
    """Yield the world in blocks, as the nightly job divides history. Each block starts with the recorded owners. It
    also contains the last hour of the previous block, in which averages warm up. Every candidate is simulated in all
    blocks.
    """
    whole, length, warm = dense(world), BLOCK_S // world.period_seconds, WARM_S // world.period_seconds
    for number, (chunk, owner) in enumerate(zip(chunks(whole, length, warm), owners, strict=True)):
        begin = number * length - chunk.warm
        frames = dense(world, begin, begin + chunk.traffic.periods, owner)
        traffic = chunk.traffic
        yield replace(chunk, traffic=replace(frames, short=traffic.short, long=traffic.long, samples=traffic.samples))


def calibrated(seed: int, size: Size, changes: Mapping[str, Any] | None = None) -> Row:
    """Search settings on the first days of a world, or take `changes`, and compare them with the defaults on the
    last.
    """
    started, world = time.process_time(), world_of(seed, size)
    owners = owners_of(world)
    blocks = dict(enumerate(blocks_of(world, owners)))
    days = {number: int(block.traffic.days[-1]) for number, block in blocks.items()}
    train, late = ([number for number in days if days[number] in part] for part in split_days(days.values()))
    now, candidate, tried, reason = (
        present(),
        Candidate(name="calibrated", changes=changes or {}),
        0,
        "as the page says",
    )
    if changes is None:
        reach = size.nights * AdoptionRules().max_steps
        space = SearchSpace(base=world.params, strategies=("avg",), names=NAMES, reach=reach, cycles=())
        thorough = {"points": size.points, "rounds": size.rounds, "keep": size.keep}
        candidates = adoptable(search(space, partial(in_blocks, blocks), blocks=train, **thorough))
        choice = choose(candidates, train=train, held_out=late)
        tried, candidate, reason = len(candidates.candidates), choice.candidate, choice.reason
    both = list({item.key: item for item in (now, candidate)}.values())
    first, owner = late[0] * BLOCK_S, owners[late[0]]
    judged = {key: total(parts) for key, parts in in_blocks({number: blocks[number] for number in late}, both).items()}
    courses = [
        in_one_course(replace(world, period_seconds=period), first, owner, both)
        for period in dict.fromkeys((size.period_seconds, size.stock_seconds))
        if len(both) > 1
    ]
    pairs = [Pair.of(run[now.key], run[candidate.key]) for run in (judged, *courses)]
    return Row(
        seed=seed,
        about=about(world),
        candidates=tried,
        held_out=len({days[number] for number in late}),
        blocks=pairs[0],
        unbroken=pairs[1] if courses else None,
        stock=pairs[-1] if courses else None,
        changes=candidate.changes,
        reason=reason,
        cpu_seconds=time.process_time() - started,
    )


def in_blocks(
    blocks: Mapping[int, Chunk], candidates: Sequence[Candidate]
) -> Mapping[str, Mapping[int, CandidateMeasures]]:
    """Simulate each candidate in each block, from the recorded owners. Return the measures by candidate and block."""
    measures: dict[str, dict[int, CandidateMeasures]] = {}
    for number, block in blocks.items():
        for row in backtest(block.traffic, candidates, warm=block.warm):
            numbers = measures.setdefault(row.candidate, {})
            numbers[number] = numbers.get(number, CandidateMeasures()) + row.measures
    return measures


def in_one_course(
    world: World, first_s: int, owner: Ints, candidates: Sequence[Candidate]
) -> dict[str, CandidateMeasures]:
    """Simulate each candidate in one run, from second `first_s` of the world to its end. `owner`: owners at its
    start.
    """
    begin, warm = first_s // world.period_seconds, WARM_S // world.period_seconds
    whole = dense(world)
    averages = Averaging(whole)
    averages.advance(whole, begin - warm)
    frames = dense(world, begin - warm, owner=owner)
    frames = replace(frames, short=averages.short, long=averages.long, samples=averages.samples)
    measures: dict[str, CandidateMeasures] = {}
    for row in unbroken([Chunk(traffic=frames, warm=warm)], candidates):
        measures[row.candidate] = measures.get(row.candidate, CandidateMeasures()) + row.measures
    return measures


def rows_of(
    seeds: Sequence[int], size: Size, folder: Path, workers: int, reasons: Mapping[int, Row] | None = None
) -> list[Row]:
    """Return the result of every world. Results that are stored in `folder` are not computed again. `reasons`: the rows
    of the page. If given, their proposals are judged again, and rows of other seeds than `seeds` are returned
    unchanged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    how = "-".join(map(str, (*asdict(size).values(), *(["again"] if reasons else []))))
    paths = {seed: folder / f"{seed}-{how}.json" for seed in seeds}
    rows = {seed: _row(json.loads(path.read_text())) for seed, path in paths.items() if path.exists()}
    # Spawned: a process that is forked while other threads run can inherit a lock that is never released.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = {
            pool.submit(calibrated, seed, size, reasons[seed].changes if reasons else None): seed
            for seed in seeds
            if seed not in rows
        }
        for done in as_completed(waiting):
            row = rows[waiting[done]] = done.result()
            paths[row.seed].write_text(json.dumps(asdict(row)))
            print(f"world {row.seed} ({row.about}): {row.reason}; {row.cpu_seconds:.0f} s of CPU", flush=True)
    rows = {**(reasons or {}), **rows}
    return [rows[seed] for seed in sorted(rows)]


def _row(document: dict[str, Any]) -> Row:
    return Row(**document | {name: Pair(**document[name]) for name in RUNS if document[name]})


def said_by(text: str) -> dict[int, Row]:
    """Return the row of each world in the page, by seed, with the digits that the page has."""
    number = r"([-+\d.]+)%? \| "
    first, *courses = (
        {int(seed): (about, cells, rest) for seed, about, *cells, rest in re.findall(pattern, part, re.MULTILINE)}
        for part in text.split("\n## ")[1:]
        for pattern in [rf"^\| (\d+) \| (\d+ x [^|]+ \| )?{number * 6}?(.*)$"]
    )
    pairs = [{seed: _pair(cells) for seed, (_, cells, _) in part.items()} for part in (first, *courses)]
    return {
        seed: Row(
            seed=seed,
            about=about.removesuffix(" | "),
            candidates=0,
            held_out=0,
            blocks=pairs[0][seed],
            unbroken=pairs[1].get(seed) if courses else None,
            stock=pairs[2].get(seed) if courses else None,
            changes={name: float(value) for name, value in re.findall(r"`(\w+)` ([\d.]+)", rest)},
            reason="as the page says",
            cpu_seconds=0.0,
        )
        for seed, (about, _, rest) in first.items()
    }


def _pair(cells: Sequence[str]) -> Pair:
    imbalance, calibrated_imbalance, _, moves, calibrated_moves, _ = map(float, cells)
    return Pair(
        imbalance=imbalance,
        calibrated_imbalance=calibrated_imbalance,
        moves=moves,
        calibrated_moves=calibrated_moves,
    )


def faults(rows: Sequence[Row]) -> list[str]:
    """Return the violated conditions as sentences."""
    problems = [
        f"world {row.seed}: imbalance is {row.blocks.worse:.1%} worse" for row in rows if row.blocks.worse > EQUAL
    ]
    middle = statistics.median(row.blocks.fewer for row in rows)
    if middle < FEWER:
        problems.append(f"the median world saves {middle:.0%} of the moves, at least {FEWER:.0%} are wanted")
    return problems


def table_of(rows: Sequence[Row], size: Size) -> list[str]:
    """Return the results as lines of a page."""
    figures = ("imbalance", "calibrated", "worse by", "moves a day", "calibrated", "fewer")
    changes = (", ".join(f"`{name}` {value:g}" for name, value in sorted(row.changes.items())) for row in rows)
    lines = table(
        ["seed", "brokers x bundles, what is particular", *figures, "what changes"],
        (
            [row.seed, row.about, *_cells(row.blocks), change or "nothing"]
            for row, change in zip(rows, changes, strict=True)
        ),
    )
    middle = statistics.median(row.blocks.fewer for row in rows)
    most = max(row.blocks.worse for row in rows)
    counted = f"Median: {middle:.0%} fewer moves, with the proposals that the job refuses."
    lines += ["", f"{counted} Largest loss of balance: {most:+.2%}."]
    for name, title, text in _courses(size):
        pairs: dict[int, Pair] = {row.seed: pair for row in rows if (pair := getattr(row, name)) is not None}
        cells = ([seed, *_cells(pair)] for seed, pair in pairs.items())
        lines += ["", f"##{'#' if size.stock else ''} {title}", *_paragraphs(text), ""]
        lines += table(["seed", *figures], cells)
        lost = {seed: pair.worse for seed, pair in pairs.items() if pair.worse > EQUAL}
        losses = ", ".join(f"{seed} ({worse:+.1%})" for seed, worse in lost.items()) or "none"
        lines += ["", f"Worlds that lose more than {EQUAL:.0%} of balance, {len(lost)} of {len(pairs)}: {losses}."]
        if missing := [str(row.seed) for row in rows if row.changes and row.seed not in pairs]:
            lines[-1] += f" Not run so: {', '.join(missing)}."
    return lines


def _courses(size: Size) -> list[tuple[str, str, str]]:
    """Return name, table title and introduction of each unbroken run."""
    unbroken = (
        "The same settings in one run over all held-out days, as a cluster runs. The nightly job makes such a run of"
        f" its own, and a proposal that loses more than {EQUAL:.0%} of balance in it is refused (`WorseUnbroken`)."
    )
    stock = (
        f"The same run with a snapshot each {size.stock_seconds} s, as stock clusters make them, and settings that were"
        f" found on snapshots of {size.period_seconds} s. A hit is a report, so there are"
        f" {size.period_seconds / size.stock_seconds:g} times as many in the same time: what was found on one interval"
        " does not hold for another."
    )
    courses = [
        ("unbroken", "Unbroken", unbroken),
        ("stock", f"Unbroken, a snapshot each {size.stock_seconds} s", stock),
    ]
    return courses[:1] if size.stock else courses


def _paragraphs(*texts: str) -> list[str]:
    """Return each text after an empty line, as lines of a page."""
    return [line for text in texts for line in ("", *wrap(text, 120, break_on_hyphens=False))]


def _cells(pair: Pair) -> tuple[str, ...]:
    imbalance = f"{pair.imbalance:.4f}", f"{pair.calibrated_imbalance:.4f}", f"{pair.worse:+.1%}"
    return (*imbalance, f"{pair.moves:.1f}", f"{pair.calibrated_moves:.1f}", f"{pair.fewer:.0%}")


def _anchor(title: str) -> str:
    """Return the anchor of a heading."""
    return title.lower().replace(",", "").replace(" ", "-")


def page(rows: Sequence[Row], size: Size) -> str:
    """Return the text of docs/reference/calibration.md."""
    late, run = max(row.held_out for row in rows), [str(row.seed) for row in rows if row.held_out]
    verdict = (
        f"**Thresholds that were found on snapshots of {size.period_seconds} s do not hold for the"
        f" {size.stock_seconds} s of stock clusters** ([figures](#{_anchor(_courses(size)[-1][1])})). Calibrate on"
        f" history of the cluster's own interval: [what that brings at {size.stock_seconds} s](#{_anchor(OWN)})."
    )
    search = (
        f"Made-up worlds of {size.days} days (seeds {', '.join(str(row.seed) for row in rows)}), a snapshot each"
        f" {size.period_seconds} s. The nightly job's search (within what {size.nights} nights may change) sees the"
        f" first days; the figures are of the {late} held-out ones: the default settings beside the calibrated ones, on"
        " the same traffic. Imbalance is the time mean of max/mean - 1."
    )
    blocks = (
        f"As the search sees it: each block of {BLOCK_S // 3600} hours begins at the recorded placement, so a setting"
        " lives on the balance that the defaults left behind, and the rule of choice was made on these worlds. So it"
        " promises less for a cluster that runs on for days."
    )
    tried = max(row.candidates for row in rows)
    how = f"up to {tried} candidates a world" if tried else "what changes is as the page before had it, none searched"
    minutes = sum(row.cpu_seconds for row in rows) / 60
    spent = "1 minute" if round(minutes) == 1 else f"{minutes:.0f} minutes"
    parts = [
        "# What a calibration is worth",
        "",
        f"Written by `python -m evidence.calibrated {'' if tried else '--again '}--write`; do not edit.",
        *_paragraphs(verdict, search),
        "",
        f"## In blocks of {BLOCK_S // 3600} hours",
        *_paragraphs(blocks),
        "",
        *table_of(rows, size),
        "",
        f"Worlds run last: {', '.join(run)}, in {spent} of one core; {how}.",
    ]
    return "\n".join(parts) + "\n"


def own_section(rows: Sequence[Row], size: Size) -> str:
    """Return the last section of the page, in which search and comparison read snapshots of a stock cluster."""
    about = (
        f"Other worlds (seeds {', '.join(str(row.seed) for row in rows)}), on which nothing of the method was made:"
        f" {size.days} days with a snapshot each {size.period_seconds} s, as stock clusters make them. The same search"
        " sees the first days, and both settings are judged on the held-out ones, with the same interval. A proposal"
        f" that loses more than {EQUAL:.0%} of balance unbroken is refused by the nightly job (`WorseUnbroken`)."
    )
    proposals = [row.unbroken for row in rows if row.unbroken is not None]
    good = [f"{pair.fewer:.0%}" for pair in proposals if pair.worse <= EQUAL]
    summary = (
        f"Of {len(rows)} worlds {len(proposals)} get a proposal; the job refuses {len(proposals) - len(good)} of these."
        f" Fewer moves in the others, unbroken: {', '.join(good) or 'none'}."
    )
    minutes = sum(row.cpu_seconds for row in rows) / 60
    parts = [
        f"## {OWN}",
        "",
        f"Written by `python -m evidence.calibrated --period {size.period_seconds} --seeds"
        f" {' '.join(str(row.seed) for row in rows)} --write`.",
        *_paragraphs(about, summary),
        "",
        *table_of(rows, size),
        "",
        f"{minutes:.0f} minutes of one core; up to {max(row.candidates for row in rows)} candidates a world.",
    ]
    return "\n".join(parts) + "\n"


def renewed(text: str, rows: Sequence[Row], size: Size) -> str:
    """Return the page with the results of this run. Other parts stay unchanged."""
    begin = text.find(f"## {OWN}\n")
    main_part, own = (text, "") if begin < 0 else (text[:begin], text[begin:])
    return f"{main_part.rstrip()}\n\n{own_section(rows, size)}" if size.stock else f"{page(rows, size)}\n{own}"


def main() -> int:
    """Run and print. With `--write`, also write the page. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m evidence.calibrated", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 11)), help="which worlds (1 to 10)")
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--period", type=int, default=300, help="seconds between two snapshots")
    parser.add_argument("--points", type=int, default=5, help="values a parameter in the first round")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of refinement")
    parser.add_argument("--keep", type=int, default=2, help="how many of the best they go on from")
    parser.add_argument("--nights", type=int, default=2, help="how many nights' steps a setting may be away")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=ROOT / ".run" / "calibrated", help="where worlds are kept")
    parser.add_argument("--again", action="store_true", help="judge anew what the page proposes, search nothing")
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    size = Size(
        days=options.days,
        period_seconds=options.period,
        points=options.points,
        rounds=options.rounds,
        keep=options.keep,
        nights=options.nights,
    )
    reasons = said_by(PAGE.read_text(encoding="utf-8")) if options.again else None
    if reasons is not None and (missing := set(options.seeds) - set(reasons)):
        parser.error(f"--again: the page says nothing of seeds {', '.join(map(str, sorted(missing)))}")
    rows = rows_of(options.seeds, size, options.folder, options.workers, reasons)
    print("\n".join(table_of(rows, size)))
    if options.write:
        PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), rows, size), encoding="utf-8")
    for text in (wrong := faults(rows)):
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
