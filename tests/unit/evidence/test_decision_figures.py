"""The figures of the decision rule: the quick model, and the page's generator on one cell."""

from __future__ import annotations

from pathlib import Path

from bundlekeel.simulator.run import DEFAULT
from evidence import decision_worlds as worlds
from evidence.decision_figures import page
from evidence.decision_models import QuickModel, play_simulated
from evidence.decision_tables import Results, step_cells


def test_the_quick_model_moves_as_the_simulator_does() -> None:
    """Both balance a step to three times the mean with about the same moves, after about the same time."""
    world = worlds.step(3, 3.0, 1)
    quick, simulated = QuickModel(world).play(), play_simulated(world, 1, DEFAULT, 1.0)
    assert abs(len(quick) - len(simulated)) <= 2
    assert abs(quick[0].at - simulated[0].at) <= 4


def test_the_page_has_the_runs_of_a_cell(tmp_path: Path) -> None:
    """A stored run is not repeated."""
    results = Results(tmp_path / "steps.json", [1])
    results.run(list(step_cells())[:1])
    stored = results.path.read_text(encoding="utf-8")
    again = Results(results.path, [1]).load()
    again.run([(key, _fail) for key in again.stored])
    assert results.path.read_text(encoding="utf-8") == stored
    assert "| 3 | 3.0 |" in page({"steps": again})


def _fail(seed: int) -> dict[str, float | None]:
    raise AssertionError(seed)
