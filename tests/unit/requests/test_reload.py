"""The settings file while the sidecar runs: parameters come into force, a bad file changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bundlekeel.leader.state.effective_parameters import EffectiveParameters, merging
from bundlekeel.requests.reload import Reload
from bundlekeel.settings.load import load_settings
from tests.support.world import FakeCluster, FakeSidecar

NAMED = "cluster: c\nmetadata_store: zk:127.0.0.1:2181\n"
START = f"{NAMED}parameters: {{cpu_weight: 0.9}}\n"


class Running:
    """A sidecar's settings while it runs."""

    def __init__(self, file: Path, environ: dict[str, str] | None = None) -> None:
        sidecar = FakeSidecar(FakeCluster())
        self.file, self.journal, self.metric = file, sidecar.journal, sidecar.metric
        self.announced: list[str] = []
        file.write_text(START)
        loaded = load_settings(file, {"mode": "observe"}, environ=environ or {})
        self.effective_parameters = EffectiveParameters(merging(loaded), None)
        self.reload = Reload(
            loaded, self.effective_parameters, sidecar.journal, sidecar.telemetry, sidecar.clock, self.announced.append
        )

    async def read(self, text: str) -> dict[str, Any]:
        self.file.write_text(text)
        await self.reload.read()
        return self.told[-1]

    async def tells(self, times: int) -> None:
        async with asyncio.timeout(10):
            while len(self.told) < times:  # noqa: ASYNC110 - a journal has no event
                await asyncio.sleep(0.01)

    @property
    def told(self) -> list[dict[str, Any]]:
        """The journal's records of it."""
        return [dict(record) for record in self.journal.tail(100, kind="settings")]


@asynccontextmanager
async def at_work(reload: Reload) -> AsyncIterator[None]:
    """While it watches."""
    task = asyncio.create_task(reload.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_parameters_hold_from_the_next_cycle(tmp_path: Path) -> None:
    """With their origin, over the environment no less than at the start; the journal has what changed."""
    run = Running(tmp_path / "c.yaml", {"BUNDLEKEEL__PARAMETERS__DIRECT_MEMORY_WEIGHT": "0.3"})
    text = f"{NAMED}strategy: threshold\nparameters: {{maxUnloadPercentage: 0.3, direct_memory_weight: 0.7}}\n"
    record = await run.read(text)
    assert run.effective_parameters.current.strategy == "avg", "the plan under way goes on by what it began with"
    params = run.effective_parameters({}, ())
    assert (params.strategy, params.max_unload_ratio, params.cpu_weight) == ("threshold", 0.3, 1.0)
    assert params.direct_memory_weight == 0.3
    assert run.effective_parameters.effective.origins["strategy"] == f"file:{run.file}:3"
    changed = {
        "strategy",
        "parameters.max_unload_ratio",
        "parameters.uniform_max_unload_ratio",
        "parameters.cpu_weight",
    }
    assert record["outcome"] == "applied" and set(record["applied"]) == changed and record["restart_needed"] == []
    assert "parameters.max_unload_ratio 0.5 -> 0.3" in record["sentence"]
    assert 'settings_read_total{outcome="applied"} 1.0' in run.metric("settings_read_total")
    await run.read(text.replace("maxUnloadPercentage: 0.3", "maxUnloadPercentage: 0.4"))
    assert len(run.announced) == len(set(run.announced)) == 2, "each reading is announced by its own digest"


async def test_what_needs_a_restart_is_named(tmp_path: Path) -> None:
    run = Running(tmp_path / "c.yaml")
    record = await run.read(
        START + "cycle: {interval: 20s}\nadmin: {token: geheim}\nwindows: []\nadopt_broker_settings: true\n"
    )
    assert (record["applied"], record["restart_needed"]) == (
        [],
        ["adopt_broker_settings", "cycle.interval", "admin.token"],
    )
    assert record["sentence"].endswith("a restart is needed for adopt_broker_settings, cycle.interval, admin.token")
    assert "geheim" not in str(record) and run.metric("settings_restart_needed").endswith(" 3.0")
    record = await run.read(NAMED + "cycle: {interval: 20s}\n")
    assert (record["applied"], record["restart_needed"]) == (["parameters.cpu_weight"], ["cycle.interval"])
    record = await run.read(START)
    assert record["restart_needed"] == [] and run.metric("settings_restart_needed").endswith(" 0.0")


@pytest.mark.parametrize(
    "text",
    [
        NAMED + "parameters: {cpu_weight: -1}",
        "",
        "cluster: c",
        NAMED + "zzz: 1\nparameters: {cpu_weight: 0.5}",
        "{",
        "a: b: c",
        None,
    ],
)
async def test_a_file_that_would_not_do_changes_nothing(tmp_path: Path, text: str | None) -> None:
    """Refused whole, with every problem in the journal, also one that an editor has emptied for a moment; the next good
    one is taken."""
    run = Running(tmp_path / "c.yaml")
    if text is None:
        run.file.unlink()
    else:
        run.file.write_text(text)
    await run.reload.read()
    record = run.told[-1]
    assert record["outcome"] == "refused" and record["problems"]
    assert run.metric("settings_refused").endswith(" 1.0")
    assert run.effective_parameters({}, ()).cpu_weight == 0.9
    assert (await run.read(NAMED + "parameters: {cpu_weight: 0.5}"))["outcome"] == "applied"
    assert run.effective_parameters({}, ()).cpu_weight == 0.5 and run.metric("settings_refused").endswith(" 0.0")


async def test_the_file_is_watched(tmp_path: Path) -> None:
    """A mounted ConfigMap is replaced by turning a link; what only asks (SIGHUP) has the same file read again."""
    first, second, file = tmp_path / "1.yaml", tmp_path / "2.yaml", tmp_path / "c.yaml"
    run = Running(file)
    file.unlink()
    first.write_text(START)
    second.write_text(NAMED + "parameters: {cpu_weight: 0.4}\n")
    file.symlink_to(first)
    run.reload.every_seconds = 0.02
    async with at_work(run.reload):
        await asyncio.sleep(0.1)
        assert run.told == []
        (tmp_path / "new").symlink_to(second)
        (tmp_path / "new").rename(file)
        await run.tells(1)
        assert run.effective_parameters({}, ()).cpu_weight == 0.4
        run.reload.ask()
        await run.tells(2)
    assert [record["outcome"] for record in run.told] == ["applied", "unchanged"]
