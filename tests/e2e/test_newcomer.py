"""The first steps of a newcomer: every command of README.md and of getting-started, typed on a real cluster.

The commands come from the pages' shell blocks. They run one at a time in one bash, in a fresh copy of the sources with
nothing installed. Each must exit with code 0 and print the text of the table below. The brokers themselves are queried
for the result. The test does the manual steps: a comment of the page (set two keys), and the doctor's advice on missing
bandwidth (set the capacity).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.requests.takeover import SHEDDING
from dev.cluster import Cluster, ClusterSpec, open_cluster
from dev.demo.measure import loads
from dev.sidecar import SHARED_MACHINE
from dev.traffic import Traffic
from tests.chaos.stage import overrides, traffic_spec, until
from tests.support.newcomer import GETTING_STARTED, README, SETTINGS, Shell, copy_of_sources, lines, opened, words

# Each page starts with an installation from zero.
pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(1800)]

PATIENCE = 420.0
BUSY_BUNDLES = 24
# Lines that are not typed, and why.
NOT_TYPED = {
    "make demo": "its recipe is what tests/e2e/test_demo.py runs; tests/unit/cli/test_newcomer.py sees that it exists",
    "make test": "it runs this file",
}
EVERY_BROKER = ""
# What each of our commands must say. Those marked by True ask a sidecar: a person looks again until it is so far.
SAID: dict[str, tuple[str, bool]] = {
    "config check": (r"(?m)^ok$", False),
    "doctor": (r"\d+ checks, 0 errors", False),
    "status": (r"ready +yes", True),
    "brokers": (EVERY_BROKER, True),
    "plan": (r"moves \(\d+\)(?s:.*)the mode is recommend; first set `mode: act`", True),
    "verdicts": (rf"(?m) ({'|'.join(code.value for code in Code)}) ", True),
    "takeover": (EVERY_BROKER, False),
    "journal": (r"(?m) move .* done ", True),
    "pause": (r"reason +looking", False),
    "resume": (r"reason +all well", False),
    "mode recommend": (r"mode +recommend", False),
    "handback": (EVERY_BROKER, False),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers. Their own shedding is on, as shipped, but looks once an hour: what moves is moved by us."""
    spec = ClusterSpec(brokers=3, broker_settings={"loadBalancerSheddingIntervalMinutes": "60"})
    with open_cluster(spec) as running:
        yield running


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, as one has it after `git clone`."""
    folder = tmp_path_factory.mktemp("clone")
    copy_of_sources(folder)
    return folder


@pytest.fixture
def shell(tree: Path, tmp_path: Path) -> Iterator[Shell]:
    """A shell in it, without the settings of an earlier newcomer."""
    (tree / SETTINGS).unlink(missing_ok=True)
    with opened(tree, tmp_path, patience=PATIENCE) as opened_shell:
        yield opened_shell


@pytest.fixture
def traffic(cluster: Cluster) -> Iterator[Traffic]:
    """On 24 bundles, all of them the first broker's."""
    load = Traffic(traffic_spec(cluster, bundles=32, busy_bundles=BUSY_BUNDLES))
    load.place_all_on(cluster.brokers[0].broker_id)
    with load:
        yield load


class Newcomer:
    """Types a page's lines."""

    def __init__(self, shell: Shell, tree: Path, cluster: Cluster) -> None:
        self._shell, self._tree, self._cluster = shell, tree, cluster
        self.typed: list[str] = []

    def type(self, line: str) -> str:
        """One line as the page has it; it must succeed and say what is expected. What it said."""
        output = self._type(line)
        self.typed.append(" ".join(words(line)))
        if "# set " in line:
            self._fill_in(line.partition("# set ")[2])
        return output

    def _type(self, line: str) -> str:
        arguments = words(line)
        if arguments[0] == "bundlekeel" and arguments[-1] != "&":
            pattern, again = self._expected(arguments)
            if again:
                return self._shell.until(line, pattern)
            code, output = self._shell.run(line)
            assert re.search(pattern, output), f"`{line}` did not say {pattern!r}:\n{output}"
        else:
            code, output = self._shell.run(line)
        assert code == 0, f"`{line}` ended with {code}:\n{output}"
        return output

    def _expected(self, arguments: list[str]) -> tuple[str, bool]:
        """Return the expectation of SAID for a command. Fails if a `bundlekeel` command is not in it."""
        expectations = [SAID[name] for name in SAID if arguments[1 : 1 + len(name.split())] == name.split()]
        assert len(expectations) == 1, f"SAID must say what `{' '.join(arguments)}` is to say"
        ((pattern, again),) = expectations
        named = "".join(rf"(?=.*{re.escape(item.broker_id)})" for item in self._cluster.brokers)
        return pattern or rf"(?s)\A{named}", again

    def _fill_in(self, comment: str) -> None:
        """Do what the page's comment says (`set a, b, c`), and name the capacity, as the page says further down."""
        values = {
            "cluster": self._cluster.spec.cluster_name,
            "metadata_store": self._cluster.metadata_url,
        }
        named = re.findall(r"\w+", comment)
        assert sorted(named) == sorted(values)
        text = (self._tree / SETTINGS).read_text(encoding="utf-8")
        for key, value in values.items():
            text, times = re.subn(rf"^{key}:.*$", f"{key}: {value}", text, flags=re.MULTILINE)
            assert times == 1, key
        text += f"capacity: {json.dumps(SHARED_MACHINE)}\n"
        (self._tree / SETTINGS).write_text(text, encoding="utf-8")


def busy(cluster: Cluster) -> list[int]:
    """Return how many bundles with traffic each broker has, once all are reported: none in transit or idle."""

    def read_counts() -> list[int]:
        counts = [load.busy_bundles for load in loads(cluster, "modular")]
        return counts if sum(counts) == BUSY_BUNDLES else []

    counts: list[int] = until(read_counts, f"the brokers report {BUSY_BUNDLES} bundles with traffic", within=120)
    return counts


def typed_lines(page: str) -> list[str]:
    """The page's lines without those that are not typed."""
    return [line for line in lines(page) if " ".join(words(line)) not in NOT_TYPED]


def test_what_is_not_typed_is_in_the_pages() -> None:
    """A line that was left out once and is gone is taken off the list; most lines are typed."""
    typed = [" ".join(words(line)) for page in (README, GETTING_STARTED) for line in lines(page)]
    assert set(NOT_TYPED) <= set(typed)
    assert len(typed_lines(README)) >= 4
    assert typed_lines(GETTING_STARTED) == lines(GETTING_STARTED)


def test_readme(shell: Shell, tree: Path, cluster: Cluster, traffic: Traffic) -> None:
    """From a clone to a plan with reasons, without a change at the brokers."""
    newcomer = Newcomer(shell, tree, cluster)
    before = overrides(cluster)
    for line in typed_lines(README):
        output = newcomer.type(line)
    assert newcomer.typed[-1].startswith("bundlekeel plan")
    assert cluster.brokers[0].broker_id in output
    assert overrides(cluster) == before
    assert busy(cluster) == [BUSY_BUNDLES, 0, 0]
    assert shell.run("kill $!; wait")[0] == 0
    assert traffic.stop().lost == 0


def test_getting_started(shell: Shell, tree: Path, cluster: Cluster, traffic: Traffic) -> None:
    """Down to the page's end bundles have moved, no message is lost, and the brokers' settings are as they were."""
    newcomer = Newcomer(shell, tree, cluster)
    before = overrides(cluster)
    assert SHEDDING not in before
    for line in typed_lines(GETTING_STARTED):
        command = " ".join(words(line)[:2])
        if command == "bundlekeel takeover":
            assert (overrides(cluster), busy(cluster)) == (before, [BUSY_BUNDLES, 0, 0]), "until here nothing changes"
        if command == "bundlekeel handback":
            assert overrides(cluster)[SHEDDING] == "false", "while we act the brokers do not"
        newcomer.type(line)
    assert newcomer.typed[-2].startswith("bundlekeel handback")
    assert busy(cluster)[0] < BUSY_BUNDLES
    assert overrides(cluster) == before
    report = traffic.stop()
    assert report.lost == 0 < report.acked
