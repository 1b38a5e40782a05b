"""Settings of notifications: wrong ones are refused without showing an address, and nobody is told by default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bundlekeel.adapters.metrics import PrometheusTelemetry
from bundlekeel.core.model.errors import ConfigError
from bundlekeel.ports.records import EVENTS
from bundlekeel.settings.load import LoadedSettings, load_settings
from bundlekeel.wiring.optional import notifications
from tests.support.memory_source import RealClock

CANARY = "c4nary-h00k-5ecret"


def loaded(**hook: Any) -> LoadedSettings:
    """Settings with one webhook."""
    return load_settings(None, {"notify": {"webhooks": [{"name": "ops", **hook}]}}, environ={})


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": f"ftp://{CANARY}"},
        {"url": CANARY},
        {"url": f"http://{CANARY}", "url_file": "x"},
        {"url": {"a": CANARY}},
        {"ur1": CANARY},
        {"url": f"http://{CANARY}", "kind": "pager"},
        {"url": f"http://{CANARY}", "events": ["everything"]},
        {"url": f"http://{CANARY}", "name": "a b"},
        {},
    ],
)
def test_wrong_webhooks_are_refused_without_their_address(wrong: dict[str, Any]) -> None:
    """The message names the key, not the value."""
    with pytest.raises(ConfigError) as told:
        loaded(**wrong)
    assert "notify.webhooks" in str(told.value)
    assert CANARY not in str(told.value) and CANARY not in repr(told.value)


@pytest.mark.parametrize("wrong", [{"webhooks": CANARY}, CANARY, {"webhook": CANARY}])
def test_whole_sections_are_no_leak_either(wrong: Any) -> None:
    """An address at a wrong place."""
    with pytest.raises(ConfigError) as told:
        load_settings(None, {"notify": wrong}, environ={})
    assert CANARY not in str(told.value) and CANARY not in repr(told.value)


def test_two_of_one_name_are_refused_and_nobody_is_told_by_default() -> None:
    """Names are labels of metrics; without receivers nothing is wired."""
    hook = {"name": "a", "url": "http://x"}
    with pytest.raises(ConfigError, match="same name"):
        load_settings(None, {"notify": {"webhooks": [hook, hook]}}, environ={})
    none = load_settings(None, {}, environ={})
    assert notifications(none, PrometheusTelemetry(), RealClock(), member=str, leads=bool) is None


def test_the_environment_takes_json() -> None:
    """Lists are given as JSON there, as other lists are."""
    given = {"BUNDLEKEEL__NOTIFY__WEBHOOKS": json.dumps([{"name": "a", "url_file": "hook", "kind": "slack"}])}
    (hook,) = load_settings(None, environ=given).settings.notify.webhooks
    assert (hook.kind, hook.url_file, hook.events) == ("slack", Path("hook"), EVENTS)
