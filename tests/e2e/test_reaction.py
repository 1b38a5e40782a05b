"""The side-by-side comparison measures a real run from outside: `evidence.reaction`."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.reaction.contenders import CONTENDERS
from evidence.reaction.figures import EVEN_RATIO, UNEVEN_RATIO
from evidence.reaction.page import load, save
from evidence.reaction.run import Options, run


@pytest.mark.cluster
@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_a_run_is_judged_by_clients_and_owners(tmp_path: Path) -> None:
    """Everything starts on one broker and ends even, and each change of owner that was seen is a move with its gap."""
    contender = next(item for item in CONTENDERS if item.name == "ours-modular-fast")
    path = tmp_path / "1.json"
    result = run(contender, 1, Options(within_seconds=600.0, warm_seconds=75.0), path, lambda _: None)
    assert result.start_ratio >= UNEVEN_RATIO
    assert result.end_ratio <= EVEN_RATIO
    assert result.even_seconds is not None
    assert len({move.destination for move in result.moves}) >= 2
    assert result.lost == 0 < result.acked
    assert path.with_suffix(".jsonl").read_text(encoding="utf-8").count('"kind":"move"') == len(result.moves)
    save(result, path)
    assert load(path) == (result if result.counts else None)
