"""The quotas section: sizes as people write them, and every refusal with its key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bundlekeel.model.errors import ConfigError
from bundlekeel.quotas.rules.groups import QuotaLimits
from bundlekeel.quotas.settings import QuotaSettings, parse_size
from bundlekeel.settings.describe import describe
from bundlekeel.settings.load import load_settings
from bundlekeel.settings.sources import ENV_PREFIX
from bundlekeel.settings.types import InvalidSetting

GOOD = {"members": ["t:acme"], "publish_messages": 500, "publish_bytes": "10MB", "dispatch_messages": 2000}


def test_groups() -> None:
    """The issue's own example."""
    (group,) = QuotaSettings.model_validate({"groups": {"acme": GOOD}}).declared()
    assert (group.name, group.members) == ("acme", ("t:acme",))
    assert group.limits == QuotaLimits(publish_messages=500, publish_bytes=10_000_000, dispatch_messages=2000)


def test_defaults() -> None:
    """Nothing is limited, and nothing is written."""
    settings = QuotaSettings()
    assert settings.enforcer == "off"
    assert settings.declared() == ()
    assert settings.ask_all_every == 5
    assert settings.tuning().split == "even"
    assert settings.write_budget().most == 100


@pytest.mark.parametrize(
    ("text", "size"),
    [("10MB", 1e7), ("1MiB", 1048576), ("500 kB", 5e5), ("1.5G", 1.5e9), ("7", 7), (7, 7), (None, None), ("-5B", -5)],
)
def test_sizes(text: object, size: float | None) -> None:
    """Thousands and their binary sisters."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["ten", "10 PB", "", True, [], "MB"])
def test_no_sizes(text: object) -> None:
    """Anything else is refused, with what is allowed."""
    with pytest.raises(InvalidSetting) as caught:
        parse_size(text)
    assert "10MB" in caught.value.allowed


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"publish_messages": -1}, "groups.acme.publish_messages", "-1.0: negative"),
        ({"publish_bytes": "0"}, "groups.acme.publish_bytes", "0.0: out of range"),
        ({"publish_bytes": 1000}, "groups.acme.publish_bytes", "1000.0: below the least rate"),
        ({"dispatch_messages": 1, "publish_messages": 0.5}, "groups.acme.publish_messages", "0.5: out of range"),
        ({"members": ["acme"]}, "groups.acme.members", "'acme': not a member"),
        ({"members": []}, "groups.acme.members", "has no members"),
    ],
)
def test_refusals(change: dict[str, Any], field: str, words: str) -> None:
    """Field and value of what is wrong."""
    with pytest.raises(ValidationError) as caught:
        QuotaSettings.model_validate({"groups": {"acme": GOOD | change}})
    (item,) = caught.value.errors()
    refusal = item["ctx"]["error"]
    assert isinstance(refusal, InvalidSetting)
    assert (refusal.field, str(refusal)) == (field, words)
    assert refusal.allowed


@pytest.mark.parametrize("value", [True, False, "500", "many", [5]])
@pytest.mark.parametrize("kind", ["publish_messages", "dispatch_messages"])
def test_no_numbers(kind: str, value: object) -> None:
    with pytest.raises(ValidationError, match="not a number") as caught:
        QuotaSettings.model_validate({"groups": {"acme": GOOD | {kind: value}}})
    assert caught.value.errors()[0]["loc"] == ("groups", "acme", kind)


def test_limits_below_the_least_rate() -> None:
    """Each topic may pass that much in any case, so the limit could not hold; who lowers the least rate may."""
    group = {"groups": {"acme": {"members": ["t:acme"], "publish_messages": 4}}}
    assert QuotaSettings.model_validate({"least_messages": 4} | group).declared()
    with pytest.raises(ValidationError) as caught:
        QuotaSettings.model_validate({"least_messages": 5} | group)
    refusal = caught.value.errors()[0]["ctx"]["error"]
    assert "at least 5" in refusal.allowed and "quotas.least_messages" in refusal.allowed


def test_overlap() -> None:
    """Two groups over one namespace."""
    with pytest.raises(ValidationError, match="belongs to group acme already"):
        QuotaSettings.model_validate({"groups": {"acme": GOOD, "other": GOOD | {"members": ["n:acme/x"]}}})


@pytest.mark.parametrize(
    "change",
    [
        {"room": 0.01},
        {"floor": 0.9},
        {"ask_all_every": 0},
        {"report_change": 0.1},
        {"enforcer": "both"},
        {"unknown": 1},
    ],
)
def test_ranges(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        QuotaSettings.model_validate(change)


def test_in_a_settings_file(tmp_path: Path) -> None:
    """Groups are shown as they are in force; a misspelt key of one names those there are."""
    file = tmp_path / "bk.yaml"
    group = "quotas: {groups: {acme: {members: ['t:acme'], %s: 2000}}}"
    file.write_text(group % "publish_bytes")
    rows = {row["key"]: row["value"] for row in describe(load_settings(file, environ={}))}
    output = {"members": ["t:acme"], "publish_messages": None, "publish_bytes": 2000.0}
    assert json.loads(json.dumps(rows["quotas.groups"])) == {
        "acme": output | {"dispatch_messages": None, "dispatch_bytes": None}
    }
    file.write_text(group % "publish_byte")
    with pytest.raises(ConfigError, match=r"did you mean 'publish_bytes'.*allowed: members, publish_messages"):
        load_settings(file, environ={})


def test_in_the_environment() -> None:
    """Variables hold text: numbers in them are numbers, anything else is none."""
    group = f"{ENV_PREFIX}QUOTAS__GROUPS__ACME__"
    environ = {f"{group}MEMBERS": '["t:acme"]', f"{group}PUBLISH_MESSAGES": "500", f"{group}PUBLISH_BYTES": "10MB"}
    (settings,) = load_settings(None, environ=environ).settings.quotas.declared()
    assert settings.limits == QuotaLimits(publish_messages=500, publish_bytes=10_000_000)
    for text in ("true", "'500'", "many"):
        with pytest.raises(ConfigError, match=r"publish_messages = .*not a number"):
            load_settings(None, environ=environ | {f"{group}PUBLISH_MESSAGES": text})
