"""Whatever the nightly job leaves, torn or wrong: a sidecar takes a whole proposal, or stays as it was."""

from __future__ import annotations

import json
import random
from dataclasses import replace

from bundlekeel.core.calibration.thresholds import RANGES
from tests.support.memory_calibration import MemoryCalibration
from tests.unit.daemon.calibration.test_calibration import LOW, PATH, proposal, ready


def damaged(whole: bytes, seed: int) -> bytes:
    """The document cut off, with bytes exchanged, or with one value of its parameters replaced by nonsense."""
    dice, text = random.Random(seed), bytearray(whole)
    kind = seed % 3
    if kind == 0:
        return bytes(text[: dice.randrange(len(text))])
    if kind == 1:
        for _ in range(dice.randint(1, 5)):
            text[dice.randrange(len(text))] = dice.randrange(256)
        return bytes(text)
    made = json.loads(whole)
    name = dice.choice(sorted(made["parameters"]))
    wrong = (None, "much", [], {}, True, -1, 1e308, float("nan"), float("inf"), 10**400, 0.0)
    made["parameters"][name] = dice.choice([*wrong, *({**made["parameters"][name], "value": item} for item in wrong)])
    return json.dumps(made).encode()


async def test_a14_bad_thresholds() -> None:
    """Whatever lies there: unless a whole proposal was adopted all parameters are as they were, bit by bit, and each
    one adopted is in its range; the cycle goes on."""
    adopted = 0
    for seed in range(60):
        store = MemoryCalibration()
        sidecar = await ready(store)
        before = sidecar.effective_parameters.current
        store.put(PATH, damaged(proposal(sidecar), seed))
        await sidecar.calibration.check()
        now = sidecar.effective_parameters.current
        if sidecar.shared_state.desired.adopted is None:
            assert now == before
        else:
            adopted += 1
            assert replace(now, avg_low_threshold_percent=15.0) == before
            assert RANGES[LOW].minimum <= now.avg_low_threshold_percent <= RANGES[LOW].maximum
        assert (await sidecar.cycle.turn()).plan is not None
    assert adopted < 60
