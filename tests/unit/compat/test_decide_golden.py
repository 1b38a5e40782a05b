"""The complete output of `bundlekeel decide` for seeded inputs, compared with `decide_golden.txt` byte by byte.

The file has one section per case: a digest of the input lines, then one line per output line. Cases in `IN_FULL` have
the output lines themselves (up to `LONGEST`), the others their digests. The last line is the result of `run`: False
when there were errors only.
The output is an interface, so the file stays as it is: where a case fails, change the code and not the file.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bundlekeel.compat import decide
from bundlekeel.model.parameter_table import PLACEMENTS, RELEASES
from tests.parity import states, transfer_states

Line = dict[str, Any]

MODULAR = (*states.SHEDDERS, "deviation")
SEEDS = range(6)
NOW_MS = 1_700_000_000_000
# A corrected strategy acts in the first turn, on small differences.
EAGER = {
    "loadBalancerAvgShedderHitCountLowThreshold": 1,
    "loadBalancerAvgShedderHitCountHighThreshold": 1,
    "loadBalancerBrokerThresholdShedderPercentage": 5,
    "loadBalancerMsgRateDifferenceShedderThreshold": 10,
    "loadBalancerBrokerLoadTargetStd": 0.05,
    "lowerBoundarySheddingEnabled": True,
}
POLICIES = {
    "isolation": {
        "p": {
            "namespaces": ["t/a"],
            "primary": ["b[0-2]"],
            "secondary": ["b[3-9]"],
            "auto_failover_policy": {"policy_type": "min_available", "parameters": {"min_limit": "1"}},
        }
    },
    "anti_affinity": {"t/b": "g"},
    "failure_domains": {"east": ["b0:8080", "b2:8080"], "west": ["b1:8080"]},
}
CAPACITY = {"/b[024]:8080/": {"cores": 2, "throughput": 1e8}, "*": {"bandwidth": "ignore", "msg_rate": 40_000}}


def reset(strategy: str, compat: str, config: Line, **more: Any) -> Line:
    """A line that starts with empty memory."""
    return {"reset": {"strategy": strategy, "compat": compat, "config": config, **more}}


def odd(strategy: str, compat: str, seed: int) -> Iterator[Line]:
    """Turns of the modular load manager with odd records and a drawn configuration."""
    scenario = states.scenario(seed, 4)
    yield reset(strategy, compat, scenario.config, seed=seed)
    for turn in scenario.turns:
        yield turn.line()


def plain(strategy: str, compat: str, seed: int) -> Iterator[Line]:
    """Turns of the modular load manager in which CPU follows traffic, so that strategies move bundles."""
    chance = Random(seed)
    names = [f"b{number}:8080" for number in range(chance.randint(2, 7))]
    shares = {
        name: [chance.choice((0.005, 0.02, 0.05, 0.05, 0.1, 0.2)) for _ in range(chance.randint(1, 9))]
        for name in names
    }
    placement = "avg" if strategy == "avg" else chance.choice(PLACEMENTS[:3])
    for config in ({}, EAGER):
        yield reset(strategy, compat, config, seed=seed, **({"placement": placement} if seed % 2 else {}))
        for number in range(5):
            moment = NOW_MS + 60_000 * number
            bundles = {
                name: [
                    (f"t/{'ab'[place % 2]}/0x{row:04x}{place:04x}_0x{row:04x}{place + 1:04x}", share)
                    for place, share in enumerate(loads)
                ]
                for row, (name, loads) in enumerate(shares.items())
            }
            yield {
                "brokers": {name: _report(owned, moment) for name, owned in bundles.items()},
                "bundles": {
                    name: _averages(share)
                    for owned in bundles.values()
                    for name, share in owned
                    if chance.random() < 0.9
                },
                "recent": [name for owned in bundles.values() for name, _ in owned if chance.random() < 0.05],
                **(_narrow(chance) if compat == "none" else {}),
            }
            for loads in shares.values():
                loads[:] = [share * chance.choice((1.0, 1.0, 0.8, 1.25)) for share in loads]


def _rates(share: float) -> Line:
    return {
        "msgRateIn": 5e3 * share,
        "msgRateOut": 1e4 * share,
        "msgThroughputIn": 5e7 * share,
        "msgThroughputOut": 1e8 * share,
    }


def _report(owned: list[tuple[str, float]], moment: int) -> Line:
    """A broker of four cores whose bundles use these shares of it."""
    busy = sum(share for _, share in owned)
    unknown = {"usage": 0.0, "limit": -1000.0}
    return {
        "cpu": {"usage": 400 * min(1.0, 0.05 + busy), "limit": 400.0},
        "directMemory": {"usage": 10.0, "limit": 1000.0},
        "bandwidthIn": unknown,
        "bandwidthOut": unknown,
        **_rates(busy),
        "lastUpdate": moment,
        "lastStats": {name: {**_rates(share), "topics": 3} for name, share in owned},
        "bundles": [name for name, _ in owned],
        "loadReportType": "LocalBrokerData",
    }


def _averages(share: float) -> Line:
    term = {"numSamples": 5, **_rates(share)}
    return {"shortTermData": {"maxSamples": 10, **term}, "longTermData": {"maxSamples": 1000, **term}, "topics": 3}


def _narrow(chance: Random) -> Line:
    extras = {"policies": POLICIES, "capacity": CAPACITY, "now": NOW_MS + 60_000 * chance.randrange(9)}
    return {name: value for name, value in extras.items() if chance.random() < 0.2}


def extensible(strategy: str, compat: str, seed: int) -> Iterator[Line]:
    """Turns of the extensible load manager; for strategies that cannot read them, too."""
    chance = Random(1000 + seed)
    config, turns = transfer_states.case(chance)
    yield reset(strategy, compat, config, seed=seed)
    yield from turns
    if compat == "none":
        yield reset(strategy, compat, EAGER | {"loadBalancerSheddingConditionHitCountThreshold": 0})
        for number, turn in enumerate(turns):
            yield turn | ({"policies": POLICIES} if number % 2 else {})


def mixed(compat: str) -> Iterator[Line]:
    """One run over every strategy and both kinds of records, so that a reset must clear all memory."""
    for strategy in (*MODULAR, "transfer"):
        for lines in (plain(strategy, compat, 3), extensible(strategy, compat, 3)):
            yield from list(lines)[:3]


def refused() -> Iterator[Line | bytes]:
    """Lines that cannot be used, each between two turns of one run; then with compat and `transfer`."""
    scenario = states.scenario(5, 1)
    turn = scenario.turns[0].line()
    state = transfer_states.case(Random(5))[1][0]
    yield {"bench": 1}
    yield reset("avg", "none", EAGER)
    yield turn
    for line in BAD_LINES:
        yield line
        yield turn if isinstance(line, bytes) or "reset" not in line else reset("avg", "none", EAGER)
    for strategy, compat in (("avg", "4.2"), ("transfer", "4.2"), ("transfer", "none"), ("threshold", "none")):
        yield reset(strategy, compat, {})
        yield from (turn, state, state | {"bundles": turn["bundles"]}, turn | {"missing": ["b9:8080"]}, b"{")
        yield from (_torn(turn), _torn(state), {"brokers": {}}, {"brokers": {}, "top_bundles": {}})


def _torn(line: Line) -> Line:
    """One record of each kind cannot be read."""
    bad = {"msgRateIn": [], "cpu": 7, "weightedMaxEMA": {}, "bundleName": "no bundle"}
    spoiled = {"brokers": {**line["brokers"], "b9:8080": bad}}
    if "bundles" in line:
        spoiled["bundles"] = {**line["bundles"], "t/a/0x00000000_0x00000001": {"topics": "x"}, "no bundle": {}}
    if "top_bundles" in line:
        spoiled["top_bundles"] = {**line["top_bundles"], "b9:8080": [bad]}
    return line | spoiled


KEY = "loadBalancerAvgShedderHitCountHighThreshold"
BAD_LINES: tuple[Line | bytes, ...] = (
    *(b"", b"  ", b"{nonsense", b"\xff\xfe", b"[]", b"7", b"{}", b'{"now": -1, nonsense', b'{"brokers": {"a": 1e999}}'),
    *({"turn": 1}, {"brokers": []}, {"brokers": {"b:1": 7}}, {"brokers": {"": {}}}, {"brokers": {}, "bench": 1}),
    *({"brokers": {}, "now": value} for value in ("x", -1, 2**60, 1.5)),
    *({"brokers": {}, "recent": "x"}, {"brokers": {}, "recent": [1]}, {"brokers": {}, "bundles": {"a/b/c": None}}),
    *({"brokers": {}, "policies": value} for value in ({"a": 1}, {"isolation": {"p": {}}}, [], {"anti_affinity": 1})),
    {"brokers": {}, "policies": {"failure_domains": {"d": "b1"}}},
    *({"brokers": {}, "capacity": value} for value in ([], {"b": {"nic": 1}}, {"/(/": {"cores": 1}})),
    *({"brokers": {}, "capacity": {"b": value}} for value in ({"nic_gbps": "x"}, {"cores": 1e300}, {"cores": -1})),
    {"brokers": {}, "capacity": {"b": {"cpu": "ignore", "cores": 8}}},
    *({"brokers": {}, name: {}} for name in ("top_bundles", "recent_brokers")),
    *({"brokers": {}, "missing": value} for value in ([], [""], {}, "x")),
    *({"bench": value} for value in (0, "x", 10**9)),
    *({"reset": value} for value in (5, {"strateggy": "avg"}, {"strategy": "best"}, {"placement": "best"})),
    *({"reset": {"seed": value}} for value in ("x", 2**64, 1.5)),
    {"reset": {}, "now": 5},
    *({"reset": {"strategy": "threshold", "compat": value}} for value in ("3.0", "4.1", 4)),
    {"reset": {"strategy": "deviation", "compat": "4.2"}},
    {"reset": {"strategy": "transfer", "compat": "4.2", "placement": "avg"}},
    {"reset": {"strategy": "threshold", "compat": "4.0", "placement": "round_robin"}},
    {"reset": {"config": {"loadBalancerAvgShedderLowTreshold": 1}}},
    *({"reset": {"config": {KEY: value}}} for value in ("many", "Infinity", -1, 1e300, [], [1], {})),
    *({"reset": {"config": {"maxUnloadPercentage": value}}} for value in ("half", 2, -0.1, True)),
    {"reset": {"config": {"max_unload_ratio": 1}}},
    {"reset": {"config": {"loadBalancerLoadSheddingStrategy": "a.b.OwnShedder"}}},
    {"reset": {"config": {"loadBalancerLoadPlacementStrategy": "a.b.OwnPlacement"}}},
)

CASES: dict[str, Callable[[], Iterator[Line | bytes]]] = {
    f"{kind.__name__} {strategy} {compat} {seed}": partial(kind, strategy, compat, seed)
    for compat in RELEASES
    for kind, strategies in ((odd, MODULAR), (plain, (*MODULAR, "transfer")), (extensible, ("transfer", "avg")))
    # In 5.0 only AvgShedder differs from 4.2.
    for strategy in (strategies if compat != "5.0" else {"avg"} & {*strategies})
    for seed in (SEEDS if (kind is extensible) == (strategy == "transfer") else range(1))
}
CASES |= {f"mixed {compat}": partial(mixed, compat) for compat in RELEASES if compat != "5.0"} | {"refused": refused}
IN_FULL = {case for case in CASES if case.endswith(" 0") or case == "refused"}
LONGEST = 2000
GOLDEN = dict(
    part.split("\n", 1) for part in Path(__file__).with_name("decide_golden.txt").read_text().split("== ")[1:]
)


def output(case: str) -> list[str]:
    """The section of a case."""
    lines = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in CASES[case]()]
    out = io.BytesIO()
    good = decide.run([line + b"\n" for line in lines], out)
    answers = out.getvalue().split(b"\n")[:-1]
    page_text = [line.decode() if case in IN_FULL and len(line) <= LONGEST else _digest(line) for line in answers]
    return [_digest(b"\n".join(lines)), *page_text, str(good)]


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]


def test_the_file_has_every_case() -> None:
    """No case is missing, and none is there that no input has."""
    assert GOLDEN.keys() == CASES.keys()


@pytest.mark.parametrize("case", CASES)
def test_every_byte_is_as_it_was(case: str) -> None:
    """First the input: where it differs, the generator has changed and not the decision."""
    lines = output(case)
    expected = GOLDEN[case].rstrip("\n").split("\n")
    assert lines[0] == expected[0], "the generator gives other input"
    assert lines == expected
