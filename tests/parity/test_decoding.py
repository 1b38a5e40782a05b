"""Compare reports read by our compat decoder with Pulsar's own mapper: both return equal values or refuse the
report.
"""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from bundlekeel.compat.shedders import CompatPicture
from dev.oracle import Oracle
from dev.oracle.oracle import older_jar
from tests.parity.states import MONITORS, scenario
from tests.support.pulsar import decode_compat

# Valid and invalid values of a report, as JSON texts.
NUMBERS = (
    *("0", "1", "-1", "0.1", "-0.0", "1e-320", "1.7976931348623157e308", "1e999", "-1e999", "123456789012345678901234"),
    *("null", '"NaN"', '"Infinity"', '"-Infinity"', '"INF"', '"-INF"', '"12.5"', '" 7 "', '""', '"  "', '"null"'),
    *('"1d"', '"abc"', '"0x5"', "true", "[]", "{}", "[1]"),
)
OBJECTS = (
    "null",
    "[]",
    '""',
    '"x"',
    "7",
    "{}",
    '{"usage":50,"limit":100}',
    '{"usage":null,"limit":null}',
    '{"limit":7}',
)
LISTS = ("null", "[]", "{}", '""', '"x"', '["a","a","b"]', '["a",null]', "[1,2.50,true]", '[["a"]]', '[{"a":1}]')
STATS = ("null", "{}", "[]", '""', '{"a":{},"b":null}', '{"a":{"msgRateIn":1},"b":{}}', '{"a":5}', '{"a":[]}')
FIELDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut"), NUMBERS),
    **dict.fromkeys(("cpu", "directMemory", "bandwidthIn", "bandwidthOut"), OBJECTS),
    "bundles": LISTS,
    "lastStats": STATS,
}


def compare(oracle: Oracle, texts: dict[str, str]) -> tuple[int, int]:
    """(read, refused) by both; raises at the first difference."""
    line = "{" + '"decode":{' + ",".join(f"{json.dumps(name)}:{text}" for name, text in texts.items()) + "}}"
    oracle.ask({"reset": {}})
    answer = oracle.ask(line.encode())
    picture = decode_compat({name: text.encode() for name, text in texts.items()}, {})
    refused = dict(picture.excluded)
    assert list(answer) == list(texts)
    for name, text in texts.items():
        java = answer[name]
        # A null collection is read, but then every class fails on it: ours leaves that report out as well.
        unusable = "error" in java or java["bundles"] is None
        assert unusable == (name in refused), (text, java, refused.get(name))
        if not unusable:
            assert describe(picture, picture.brokers.index(name)) == expected(java), text
    return len(picture.brokers), len(refused)


def describe(picture: CompatPicture, row: int) -> dict[str, Any]:
    assert picture.stats is not None
    return {
        "percent": [value.hex() for value in picture.percent[row].tolist()],
        "traffic": [value.hex() for value in picture.traffic[row].tolist()],
        "bundles": int(picture.bundle_count[row]),
        "stats": len(picture.stats[row]),
    }


def expected(java: dict[str, Any]) -> dict[str, Any]:
    # Java writes a float in the fewest digits that give that float again, not the double it stands for.
    with np.errstate(over="ignore"):
        percent = [float(np.float32(value)) for value in java["percent"]]
    return {
        "percent": [value.hex() for value in percent],
        "traffic": [float(value).hex() for value in java["traffic"]],
        "bundles": len(java["bundles"]),
        "stats": len(java["stats"]),
    }


def test_every_odd_value_in_every_field(each_oracle: Oracle) -> None:
    texts = {f"{field} {value}": f'{{"{field}":{value}}}' for field, values in FIELDS.items() for value in values}
    for resource in ("cpu", "bandwidthOut"):
        texts |= {f"{resource} {figure} {value}": f'{{"{resource}":{{"usage":30,"limit":60,"{figure}":{value}}}}}'
                  for figure in ("usage", "limit") for value in NUMBERS}  # fmt: skip
    read, refused = compare(each_oracle, texts)
    assert read > 150
    assert refused > 50


def test_records_that_are_no_objects(each_oracle: Oracle) -> None:
    compare(each_oracle, {value: value for value in ("null", "[]", "5", '"x"', "true", "{}")})


def test_reports_of_seeded_states(each_oracle: Oracle) -> None:
    dice, texts = random.Random(7), {}
    for seed in range(60):
        for host, record in scenario(seed, 1, selections=True).turns[0].brokers.items():
            field = dice.choice(list(FIELDS))
            spoilt = {name: json.dumps(value) for name, value in record.items()}
            if dice.random() < 0.3:
                spoilt[field] = dice.choice(FIELDS[field])
            texts[f"{seed} {host}"] = "{" + ",".join(f'"{name}":{value}' for name, value in spoilt.items()) + "}"
    read, refused = compare(each_oracle, texts)
    assert read > 300
    assert refused > 10


def test_heartbeats_of_the_4_0_line() -> None:
    """4.0.8's own patterns, run: three-part names count there, and a two-part SLA namespace does not."""
    namespaces = [*MONITORS, "pulsar/system", "t/a", "pulsar/a/b:80", "sla-monitor/a.b/c-d:1"]
    # In a JVM of its own: the class registers metrics, which works but once for both releases.
    with Oracle() as fresh:
        fresh.ask({"reset": {}})
        java = fresh.ask({"monitors": namespaces, "older_jar": str(older_jar())})["monitors"]
    data = b'{"shortTermData":{},"longTermData":{}}'
    bundles = decode_compat({}, {f"{name}/0x0_0x1": data for name in namespaces}).bundles
    assert {bundles.names[row].removesuffix("/0x0_0x1") for row in bundles.monitors("4.0")} == set(java)
    assert bundles.monitors("4.2") != bundles.monitors("4.0")


@pytest.mark.parametrize(
    "text",
    [b"{}", b"null", b'{"shortTermData":{}}', b'{"shortTermData":null,"longTermData":{}}', b'{"shortTermData":[]}'],
)
def test_bundle_data_that_makes_the_classes_fail_is_left_out(each_oracle: Oracle, text: bytes) -> None:
    """A missing term is null in Java, and whoever looks at it fails (LeastLongTermMessageRate at the long one)."""
    report = b'{"bundles":["t/a/0x0_0x1","t/a/0x1_0x2"],"lastStats":{"t/a/0x0_0x1":{}},"cpu":{"usage":99,"limit":100}}'
    config = {"loadBalancerBundleUnloadMinThroughputThreshold": 0}
    each_oracle.ask({"reset": {"strategy": "overload", "config": config}})
    line = b'{"brokers":{"b:80":%s},"bundles":{"t/a/0x0_0x1":%s}}' % (report, text)
    assert "error" in each_oracle.ask(line)
    picture = decode_compat({"b:80": report}, {"t/a/0x0_0x1": text})
    assert [name for name, _ in picture.excluded] == ["t/a/0x0_0x1"]
    assert len(picture.bundles.names) == 0
