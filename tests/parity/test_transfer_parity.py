"""Compare `compat` of `transfer` with Pulsar's real TransferShedder, 5.0.1, 4.2.4 and 4.0.8, state by state.

Two results depend on the order of brokers in Java's store of load data: the sums behind the deviation, and the choice
between two equally loaded brokers. In a broker that order is a concurrent hash map's. Here both sides get the brokers
in the order of the line (the oracle's store is a linked map), so that results can be compared exactly. The decisions
themselves are a set in Java, and are compared as sets.
"""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from bundlekeel.compat.decide_extensible import TransferTurn
from bundlekeel.compat.decide_lines import parse_line
from bundlekeel.compat.transfer import TransferPicture, find_bundles
from bundlekeel.model.parameters import Parameters, compat_defaults, from_pulsar
from dev.oracle import Oracle
from dev.oracle.oracle import older_jar
from tests.parity.transfer_states import case

EXCLUDED = "loadBalancerSheddingExcludedNamespaces"


def picture(line: dict[str, Any]) -> TransferPicture:
    """The line as `bundlekeel decide` reads it for the class: the JSON text, decoded."""
    snapshot, unread = TransferTurn.of(parse_line(json.dumps(line).encode())).picture()
    assert not unread, unread
    return snapshot


def compare(oracle: Oracle, seed: int, states: int, release: str) -> tuple[Counter[str], list[str]]:
    """Return the number of cases, and a description of every difference. A state is one turn; hit counts stay from turn
    to turn.
    """
    rng, counts, differences = Random(seed), Counter[str](), list[str]()
    while counts["states"] < states:
        keys, turns = case(rng)
        reset: dict[str, Any] = {"kind": "transfer", "config": keys}
        if release == "4.0":
            # The older class does not know the key, and neither may the compat form look at it.
            reset["older_jar"] = str(older_jar())
        answers = oracle.ask_all([{"reset": reset}, *turns])[1:]
        named = from_pulsar(keys) | {"strategy": "transfer", "compat": release}
        params, hits = Parameters(**{**compat_defaults(release), **named}), 0  # type: ignore[arg-type]
        for line, java in zip(turns, answers, strict=True):
            assert "error" not in java, java
            ours = find_bundles(picture(line), params, hits)
            hits = ours.hits
            unloads = {(item.source, item.bundle, item.target, str(item.reason)) for item in ours.unloads}
            result = (unloads, ours.label, "" if unloads else str(ours.reason), hits)
            theirs = ({tuple(item) for item in java["unloads"]}, java["label"], java["reason"], java["hits"])
            if result != theirs:
                differences.append(f"state {counts['states']} of seed {seed}: ours {result}, Java {theirs}")
            swapped = {item.source for item in ours.unloads} & {item.target for item in ours.unloads}
            counts.update(["states", f"{ours.label} {ours.reason}", *(["swaps"] if swapped else [])])
    return counts, differences


def test_a_thousand_states(each_oracle: Oracle) -> None:
    check(*compare(each_oracle, 20, 1000, each_oracle.release.line))


def test_states_of_the_4_0_line(oracle: Oracle) -> None:
    check(*compare(oracle, 20, 300, "4.0"))


def check(counts: Counter[str], differences: list[str]) -> None:
    """Without one difference, every outcome the class has among them, and swaps."""
    assert not differences, differences[0]
    outcomes = ("Success Overloaded", "Success Underloaded", "Skip HitCount", "Skip NoBundles", "Skip NoLoadData")
    assert all(
        counts[outcome] >= counts["states"] // 100
        for outcome in (*outcomes, "Skip CoolDown", "Skip OutDatedData", "swaps")
    ), counts


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(10))
def test_ten_thousand_states(each_oracle: Oracle, seed: int) -> None:
    """Ten times a thousand other states."""
    check(*compare(each_oracle, 1000 + seed, 1000, each_oracle.release.line))


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(10))
def test_ten_thousand_states_of_the_4_0_line(oracle: Oracle, seed: int) -> None:
    check(*compare(oracle, 1000 + seed, 1000, "4.0"))
