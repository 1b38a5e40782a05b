"""The Pulsar releases that run here. The environment variable PULSAR selects the one of the demo and of the suites.

It imports only the standard library, because the set-up runs it before packages are installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "PULSAR"
_FOLDER = Path(__file__).with_name("cluster") / "releases"


class UnknownReleaseError(ValueError):
    """The local cluster cannot run a release of Pulsar; the message contains those that it can run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release of Pulsar. `line`: the first two numbers of `version`. `oldest_java`: Java that its classes need."""

    line: str
    version: str
    oldest_java: int

    @property
    def pom(self) -> Path:
        """Maven project of the class path."""
        return _FOLDER / self.line / "pom.xml"

    @property
    def lock(self) -> Path:
        """Lock file of the jars that Maven resolves for the project."""
        return _FOLDER / self.line / "jars.lock"


RELEASES = {
    release.line: release
    for release in (
        Release(line="4.2", version="4.2.4", oldest_java=17),
        Release(line="5.0", version="5.0.1", oldest_java=21),
    )
}


def find_release(environment: Mapping[str, str] = os.environ) -> Release:
    """Return the release that the environment selects; 4.2 if it selects none. Raises UnknownReleaseError."""
    line = environment.get(VARIABLE) or "4.2"
    if line not in RELEASES:
        raise UnknownReleaseError(f"{VARIABLE} is {' or '.join(RELEASES)}, not {line!r}")
    return RELEASES[line]
