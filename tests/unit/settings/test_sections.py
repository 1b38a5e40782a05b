"""Sections of the settings: notifications, and values that are off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bundlekeel.model.errors import ConfigError
from bundlekeel.ports.records import EVENTS
from bundlekeel.records.metrics import PrometheusTelemetry
from bundlekeel.settings.load import LoadedSettings, load_settings
from bundlekeel.wiring.notifications import notifications
from tests.support.memory_source import RealClock

CANARY = "c4nary-h00k-5ecret"


def with_webhook(**hook: Any) -> LoadedSettings:
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
    with pytest.raises(ConfigError) as error:
        with_webhook(**wrong)
    assert "notify.webhooks" in str(error.value)
    assert CANARY not in str(error.value) and CANARY not in repr(error.value)


@pytest.mark.parametrize("wrong", [{"webhooks": CANARY}, CANARY, {"webhook": CANARY}])
def test_whole_sections_are_no_leak_either(wrong: Any) -> None:
    """An address at a wrong place."""
    with pytest.raises(ConfigError) as error:
        load_settings(None, {"notify": wrong}, environ={})
    assert CANARY not in str(error.value) and CANARY not in repr(error.value)


def test_two_of_one_name_are_refused_and_nobody_is_told_by_default() -> None:
    """Names are labels of metrics; without receivers nothing is wired."""
    hook = {"name": "a", "url": "http://x"}
    with pytest.raises(ConfigError, match="same name"):
        load_settings(None, {"notify": {"webhooks": [hook, hook]}}, environ={})
    none = load_settings(None, {}, environ={})
    assert notifications(none, PrometheusTelemetry(), RealClock(), member=str, leads=bool) is None


def test_the_environment_takes_json() -> None:
    """Lists are given as JSON there, as other lists are."""
    options = {"BUNDLEKEEL__NOTIFY__WEBHOOKS": json.dumps([{"name": "a", "url_file": "hook", "kind": "slack"}])}
    (hook,) = load_settings(None, environ=options).settings.notify.webhooks
    assert (hook.kind, hook.url_file, hook.events) == ("slack", Path("hook"), EVENTS)


@pytest.mark.parametrize("key", ["review", "quotas.enforcer", "counters.source", "notify.kubernetes"])
def test_off_needs_no_quotes_where_it_is_allowed(key: str, tmp_path: Path) -> None:
    """YAML reads it as false. `on` is a word of none of them."""
    section, _, name = key.rpartition(".")
    file = tmp_path / "bundlekeel.yaml"

    def write(word: str) -> None:
        file.write_text(f"{section}: {{{name}: {word}}}" if section else f"{name}: {word}")

    write("off")
    value: Any = load_settings(file, environ={}).settings
    for part in key.split("."):
        value = getattr(value, part)
    assert value == "off"
    write("on")
    with pytest.raises(ConfigError, match=rf"{key} = true: not allowed; YAML reads off"):
        load_settings(file, environ={})
