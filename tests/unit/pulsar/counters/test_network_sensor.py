"""Signals after a change of the traffic on a pod's network interfaces."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bundlekeel.model.errors import CodecError
from bundlekeel.pulsar.counters.network_sensor import LEAST_BYTES, NetworkSensor, TrafficRange, read_counters
from bundlekeel.simulator.virtual_time import run_virtually
from tests.support.virtual_time import LoopClock

HEADER = "Inter-|   Receive       |  Transmit\n face |bytes packets errs|bytes packets errs"
RATE = 10 * LEAST_BYTES


def table(**interfaces: tuple[int, int]) -> str:
    """Return a file like /proc/net/dev. The values are received and sent bytes."""
    rows = [f"{name:>6}:{got} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0" for name, (got, sent) in interfaces.items()]
    return "\n".join([HEADER, *rows]) + "\n"


def changes(rates: Sequence[float], *, lost: Sequence[int] = (), renamed: Sequence[int] = ()) -> list[int]:
    """Return the places of the rates (bytes per second) at which a change is noticed.

    `lost`: places at which the counters start at 0 again. `renamed`: places from which the interface is another one.
    """
    traffic, total, name, places = TrafficRange(), 0.0, "eth0", list[int]()
    traffic.add(0.0, {name: 0})
    for place, rate in enumerate(rates):
        total = rate if place in lost else total + rate
        name = f"net{place}" if place in renamed else name
        if traffic.add(place + 1.0, {name: int(total)}):
            places.append(place)
    return places


@pytest.mark.parametrize("factor", [0.5, 0.85, 1.15, 3.0])
def test_a_change_of_more_than_a_tenth_is_noticed_at_its_second_rate(factor: float) -> None:
    assert changes([RATE] * 20 + [factor * RATE] * 10)[0] == 21


@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_a_smaller_change_is_not_noticed(factor: float) -> None:
    assert changes([RATE] * 20 + [factor * RATE] * 20) == []


def test_one_second_is_not_a_change() -> None:
    """A page of metrics, or a pause of the JVM and the messages that waited for it."""
    assert changes([*[RATE] * 20, 5 * RATE, *[RATE] * 20, 0.0, 2 * RATE, *[RATE] * 20]) == []


def test_what_comes_every_minute_is_not_a_change() -> None:
    """A scrape of a page that takes three seconds is noticed once; a step to the same rate then stays unnoticed."""
    minute = [*[RATE] * 57, *[2 * RATE] * 3]
    assert set(changes(minute * 5)) <= set(range(60))


def test_a_change_of_little_traffic_is_not_noticed() -> None:
    assert changes([0.0] * 20 + [0.9 * LEAST_BYTES] * 20) == []


def test_nothing_is_noticed_in_the_first_seconds() -> None:
    assert changes([RATE] * 5 + [3 * RATE] * 3) == []


def test_a_reset_of_counters_is_not_a_change() -> None:
    """Nor is an interface with other counters, which was added."""
    assert changes([RATE] * 40, lost=[20]) == []
    assert changes([RATE] * 40, renamed=[20]) == []


def test_a_change_after_a_reset_is_noticed() -> None:
    assert changes([RATE] * 30 + [3 * RATE] * 5, lost=[20])[0] == 31


def test_loopback_is_not_counted(tmp_path: Path) -> None:
    file = tmp_path / "dev"
    file.write_text(table(lo=(900, 900), eth0=(10, 5), net1=(1, 2)))
    assert read_counters(file) == {"eth0": 15, "net1": 3}


def test_the_file_of_this_machine_is_readable() -> None:
    """The kernel has the received and sent bytes of each interface in files of their own, too."""
    root = Path("/sys/class/net")
    counters = read_counters(Path("/proc/net/dev"))
    assert counters.keys() == {item.name for item in root.iterdir() if (item / "statistics").exists()} - {"lo"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (table(lo=(1, 1)), "no network interface except loopback"),
        (f"{HEADER}\neth0: 1 2 3\n", "not a line of /proc/net/dev"),
        (f"{HEADER}\nnothing\n", "not a line of /proc/net/dev"),
        (table(eth0=(1, 1)).replace(":1 ", ":x "), "is not an integer"),
        (table(eth0=(-1, 1)), "is not between"),
    ],
)
def test_another_format_is_an_error(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "dev"
    file.write_text(text)
    with pytest.raises(CodecError, match=re.escape(error)):
        read_counters(file)


def count(file: Path, total: float | None) -> None:
    """Write the bytes that an interface has counted; None: delete the file."""
    if total is None:
        file.unlink(missing_ok=True)
    else:
        file.write_text(table(eth0=(int(total), 0)))


def signalled(file: Path, rates: Sequence[float | None], *, interval: float = 15.0) -> list[float]:
    """Return the times of signals, in seconds, with these rates in a file, one per second (None: no file)."""

    async def scene() -> list[float]:
        clock, times, total = LoopClock(), list[float](), 0.0

        async def signal() -> None:
            times.append(round(clock.boot() - began, 1))

        sensor = NetworkSensor(file, clock, interval, signal)
        count(file, 0.0)
        began = clock.boot()
        running = asyncio.create_task(sensor.run())
        await asyncio.sleep(0.5)
        for rate in rates:
            total += rate or 0.0
            count(file, None if rate is None else total)
            await asyncio.sleep(1.0)
        running.cancel()
        return times

    return run_virtually(scene())


def test_at_most_one_signal_per_interval(tmp_path: Path) -> None:
    """Also if traffic doubles every three seconds."""
    rates = [RATE] * 20 + [RATE * 2.0**step for step in range(12) for _ in range(3)]
    times = signalled(tmp_path / "dev", rates, interval=10.0)
    assert len(times) == 4
    assert all(later - earlier >= 10.0 for earlier, later in itertools.pairwise(times))


def test_a_missing_file_is_logged_once_and_read_again_later(tmp_path: Path) -> None:
    """No change is noticed when the counters return."""
    with capture_logs() as logs:
        times = signalled(tmp_path / "dev", [*[RATE] * 20, *[None] * 20, *[RATE] * 20, *[3 * RATE] * 3])
    assert len(times) == 1
    (log,) = logs
    assert (log["log_level"], log["path"]) == ("warning", str(tmp_path / "dev"))
    assert "counters.network_file" in log["event"] and "no such regular file" in log["error"]


def test_a_pipe_or_a_device_is_not_read(tmp_path: Path) -> None:
    """Reading could wait, or continue, for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="regular file"):
            read_counters(path)


def test_a_directory_that_does_not_exist_is_logged(tmp_path: Path) -> None:
    async def signal() -> None:
        pytest.fail("there is no traffic")

    with capture_logs() as logs:
        run_virtually(NetworkSensor(tmp_path / "missing" / "dev", LoopClock(), 15.0, signal).read())
    assert [log["log_level"] for log in logs] == ["warning"]
