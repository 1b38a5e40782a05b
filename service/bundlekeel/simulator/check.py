"""Check the values of a scenario: ranges, and names that must exist. Each error contains field and value."""

from __future__ import annotations

from collections.abc import Iterator

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.parameters import coerce
from bundlekeel.simulator.scenario import Event, Scenario, Tenant

_BROKER_EVENTS = ("kill", "drain", "restart", "foreign", "skew", "lose", "delay", "bad")


def check(scenario: Scenario) -> None:
    """Check all values of a scenario. Raises ConfigError at the first invalid value."""
    _above(scenario.minutes, "minutes")
    if not scenario.brokers:
        raise _refuse("brokers", scenario.brokers, "at least one group")
    if not scenario.tenants:
        raise _refuse("tenants", scenario.tenants, "at least one")
    for place, group in enumerate(scenario.brokers):
        _above(group.count, f"brokers.{place}.count")
        _above(group.capacity, f"brokers.{place}.capacity")
        _between(group.foreign, f"brokers.{place}.foreign", 0.0, 1.0)
    names = [tenant.name for tenant in scenario.tenants]
    for place, tenant in enumerate(scenario.tenants):
        if names.count(tenant.name) > 1:
            raise _refuse(f"tenants.{place}.name", tenant.name, "a name used once")
        _tenant(tenant, f"tenants.{place}", scenario.broker_count)
    _settings(scenario)
    brokers = scenario.broker_count + sum(event.count for event in scenario.events if event.do == "add")
    for place, event in enumerate(scenario.events):
        _event(event, f"events.{place}", brokers, scenario)
    for place, pin in enumerate(scenario.pins):
        _bundle(pin.tenant, pin.bundle, f"pins.{place}", scenario)
    for place, policy in enumerate(scenario.isolation):
        _one_of(policy.tenant, f"isolation.{place}.tenant", names)
        _brokers((*policy.brokers, *policy.secondary), f"isolation.{place}.brokers", brokers)
    for name, value in scenario.parameters.items():
        coerce(name, value)
    _expect(scenario, brokers)


def _tenant(tenant: Tenant, field: str, brokers: int) -> None:
    _above(tenant.bundles, f"{field}.bundles")
    _above(tenant.topics, f"{field}.topics")
    _above(tenant.namespaces, f"{field}.namespaces")
    _above(tenant.message_bytes, f"{field}.message_bytes")
    _above(tenant.fanout, f"{field}.fanout")
    if (tenant.usage is None) == (not tenant.sizes):
        raise _refuse(f"{field}.usage", tenant.usage, "a number, or `sizes` instead")
    if tenant.sizes and len(tenant.sizes) != tenant.bundles:
        raise _refuse(f"{field}.sizes", tenant.sizes, f"one size for each of the {tenant.bundles} bundles")
    if min((*tenant.sizes, tenant.usage or 0.0)) < 0:
        raise _refuse(f"{field}.sizes", tenant.sizes or tenant.usage, "no negative load")
    if tenant.largest * tenant.bundles < 1:
        raise _refuse(f"{field}.largest", tenant.largest, f"at least 1/{tenant.bundles}")
    if tenant.name.count("/") != 1 or "" in tenant.name.split("/"):
        raise _refuse(f"{field}.name", tenant.name, "tenant/namespace")
    _brokers(tenant.owners, f"{field}.owners", brokers)
    _between(tenant.correlation, f"{field}.correlation", 0.0, 1.0)
    if tenant.wave is not None:
        _above(tenant.wave.period, f"{field}.wave.period")
        _between(tenant.wave.high, f"{field}.wave.high", 0.0, tenant.wave.period)
    if tenant.ramp is not None and not tenant.ramp.end > tenant.ramp.start:
        raise _refuse(f"{field}.ramp.end", tenant.ramp.end, f"later than start ({tenant.ramp.start:g})")
    if tenant.recorded is not None:
        _above(tenant.recorded.step, f"{field}.recorded.step")
        if not tenant.recorded.factors:
            raise _refuse(f"{field}.recorded.factors", (), "at least one")
    if tenant.season is not None:
        _between(tenant.season.daily, f"{field}.season.daily", 0.0, 1.0)


def _settings(scenario: Scenario) -> None:
    settings = scenario.settings
    _above(settings.tick, "settings.tick")
    for name in ("statistics_interval", "host_interval", "report_interval"):
        value = getattr(settings, name)
        if value < settings.tick or abs(value / settings.tick - round(value / settings.tick)) > 1e-9:
            raise _refuse(f"settings.{name}", value, f"a multiple of tick ({settings.tick:g} s)")
    _between(settings.report_loss, "settings.report_loss", 0.0, 1.0)
    for name in ("broker_bytes", "drain_per_second", "report_threshold"):
        _above(getattr(settings, name), f"settings.{name}")


def _event(event: Event, field: str, brokers: int, scenario: Scenario) -> None:
    _between(event.at, f"{field}.at", 0.0, scenario.minutes)
    if event.do in _BROKER_EVENTS:
        if not event.brokers:
            raise _refuse(f"{field}.brokers", (), f"the brokers that {event.do} is about")
        _brokers(event.brokers, f"{field}.brokers", brokers)
    if event.do == "scale":
        _one_of(event.tenant, f"{field}.tenant", [tenant.name for tenant in scenario.tenants])
    if event.do == "unload":
        _bundle(event.tenant, event.bundle, field, scenario)
    if event.do == "bad" and not event.kind:
        raise _refuse(f"{field}.kind", event.kind, "nan, negative, over, empty")
    if event.do == "add":
        _above(event.count, f"{field}.count")
        _above(event.capacity, f"{field}.capacity")


def _expect(scenario: Scenario, brokers: int) -> None:
    expect = scenario.expect
    codes = [code.value for code in Code]
    for name in ("verdicts", "verdicts_any", "refusals"):
        for code in getattr(expect, name):
            _one_of(code, f"expect.{name}", codes)
    if expect.balanced_by is not None and expect.balanced is None:
        raise _refuse("expect.balanced_by", expect.balanced_by, "only together with `balanced`")
    _brokers((*expect.untouched, *(item.broker for item in expect.filled)), "expect.untouched", brokers)
    for name in expect.unmoved:
        _one_of(name, "expect.unmoved", [tenant.name for tenant in scenario.tenants])


def _bundle(tenant: str, bundle: int, field: str, scenario: Scenario) -> None:
    sizes = {item.name: item.bundles for item in scenario.tenants}
    _one_of(tenant, f"{field}.tenant", sizes)
    _between(bundle, f"{field}.bundle", 0, sizes[tenant] - 1)


def _brokers(numbers: tuple[int, ...], field: str, count: int) -> None:
    for number in numbers:
        _between(number, field, 0, count - 1)


def _one_of(value: str, field: str, allowed: list[str] | dict[str, int]) -> None:
    if value not in allowed:
        raise _refuse(field, value, ", ".join(_some(iter(allowed))))


def _some(names: Iterator[str]) -> list[str]:
    """Return the first twelve names, because the whole table of codes would be too long for an error."""
    listed = list(names)
    return listed if len(listed) <= 12 else [*listed[:12], "..."]


def _above(value: float, field: str) -> None:
    if not value > 0:
        raise _refuse(field, value, "above 0")


def _between(value: float, field: str, low: float, high: float) -> None:
    if not low <= value <= high:
        raise _refuse(field, value, f"{low:g} to {high:g}")


def _refuse(field: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(f"{field} = {value!r} is not allowed: {allowed}", field=field, value=value, allowed=allowed)
