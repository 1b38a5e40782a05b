"""Every key of Pulsar's that a parameter reads, at the default of `new ServiceConfiguration()` of each release.

What a configuration leaves out is as much a part of a class's behaviour as what it sets.
"""

from __future__ import annotations

from bundlekeel.model.parameters import BY_PULSAR_KEY, PARAMETERS, compat_defaults, defaults, from_pulsar
from dev.oracle import Oracle
from dev.oracle.oracle import older_jar

# Keys that the 4.0 line does not have.
NEWER = {"4.0": {"loadBalancerSheddingExcludedNamespaces"}}


def test_compat_begins_with_the_defaults_of_its_release(each_oracle: Oracle) -> None:
    check(each_oracle, each_oracle.release.line, {"kind": "defaults"})


def test_compat_begins_with_the_defaults_of_the_4_0_line(oracle: Oracle) -> None:
    check(oracle, "4.0", {"kind": "defaults", "older_jar": str(older_jar("pulsar-broker-common"))})


def check(oracle: Oracle, release: str, reset: dict[str, str]) -> None:
    """Reading Pulsar's default of any key changes nothing of what `compat` already runs with."""
    _, java = oracle.ask_all([{"reset": reset}, {"keys": sorted(BY_PULSAR_KEY)}])
    ours = defaults() | compat_defaults(release)
    differing = {}
    for spec in PARAMETERS:
        theirs = from_pulsar({key: java[key] for key in spec.pulsar_keys if key in java}, ranged=False)
        if set(spec.pulsar_keys) & set(java) and theirs.get(spec.name) != ours[spec.name]:
            differing[spec.name] = (theirs.get(spec.name), ours[spec.name])
    assert set(BY_PULSAR_KEY) - set(java) == NEWER.get(release, set())
    assert differing == {}
