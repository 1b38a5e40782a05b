"""The commands `takeover`, `handback` and `deadman`, in a process that is not a sidecar."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

from bundlekeel.cli.wiring import Split
from bundlekeel.model.response_fields import Json
from bundlekeel.ports import BrokerEndpoint
from bundlekeel.requests.failsafe import FailsafeLimits, judge
from bundlekeel.requests.takeover import (
    BrokerRow,
    TakeoverContext,
    TakeoverResult,
    handback,
    preview,
    read_record,
    takeover,
    unknown_namespaces,
    why_nothing_balances,
)
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.wiring.features import installed
from bundlekeel.wiring.outside import Outside, connected, endpoints_of, until_connected


async def take_over(
    loaded: LoadedSettings,
    *,
    split: Split,
    reason: str,
    by: str,
    dry_run: bool,
    namespaces: tuple[str, ...],
    tell: Callable[[str], None],
) -> Json:
    async with connected(loaded) as out:
        endpoints = await endpoints_of(loaded.settings, out)
        before = await _shedding_now(out, endpoints)
        context = replace(_context(out, endpoints), tell=tell)
        if dry_run:
            result = await preview(context, split=split == "off", namespaces=namespaces)
        else:
            result = await takeover(context, split=split == "off", reason=reason, by=by, namespaces=namespaces)
        answer = json_result(result, before)
        answer["warnings"] += await unknown_namespaces(out.metadata, namespaces)
        if why := await why_nothing_balances(out.coordination):
            answer["warnings"].append(f"nothing sheds load after this takeover: {why}")
        return answer


async def hand_back(
    loaded: LoadedSettings, *, reason: str, by: str, dry_run: bool, tell: Callable[[str], None]
) -> Json:
    async with connected(loaded) as out:
        endpoints = await endpoints_of(loaded.settings, out)
        before = await _shedding_now(out, endpoints)
        if dry_run:
            taken_over = await read_record(out.coordination) is not None
            preview_lines = [line for feature in installed() for line in await feature.preview_handback(out)]
            return handback_preview(before, preview_lines, taken_over=taken_over)
        context = replace(_context(out, endpoints), tell=tell)
        result = await handback(context, reason=reason, by=by)
        limits: list[str] = []
        for feature in installed():
            limits += await feature.hand_back(loaded, out, taken_over=result is not None, reason=reason, by=by)
        if result is None:
            return _nothing_to_undo(before, limits, done=True)
        answer = json_result(result, before)
        return answer | {"warnings": [*answer["warnings"], *limits]}


def handback_preview(before: Mapping[str, str], limits: list[str], *, taken_over: bool) -> Json:
    """Return the changes that `handback` would make, as JSON.

    `before`: by broker, whether it sheds load itself: "true", "false" or "unknown". `limits`: messages of features
    that would restore limits at brokers. `taken_over`: whether a takeover is active.
    """
    if not taken_over:
        return _nothing_to_undo(before, limits, done=False)
    rows = [
        _json_row(broker, value, "as before the takeover", ok=value != "unknown", detail="would be restored")
        for broker, value in before.items()
    ]
    return {"brokers": rows, "warnings": limits, "split": "", "done": False}


_SHEDDING_TEXTS = {"true": "sheds by itself", "false": "does not shed", "unknown": "did not respond"}


def _nothing_to_undo(before: Mapping[str, str], limits: list[str], *, done: bool) -> Json:
    """Return the result of `handback` if no takeover is active, as JSON.

    A broker is `ok` if it sheds load itself, because nothing else does. `before`, `limits`: see `handback_preview`.
    """
    rows = [
        _json_row(broker, value, value, ok=value == "true", detail=_SHEDDING_TEXTS[value])
        for broker, value in before.items()
    ]
    warnings = ["there is no takeover to undo: the brokers' settings are left as they are"]
    if quiet := [broker for broker, value in before.items() if value == "false"]:
        warnings.append(
            f"{', '.join(quiet)}: shedding is off, and no record explains why; to turn it on, "
            "`pulsar-admin brokers update-dynamic-config --config loadBalancerSheddingEnabled --value true`"
        )
    return {"brokers": rows, "warnings": [*warnings, *limits], "split": "", "done": done}


async def failsafe(loaded: LoadedSettings, *, terms: FailsafeLimits, dry_run: bool) -> Json:
    """Restore the brokers' settings if no sidecar completes cycles any more; else send no request to brokers."""
    async with connected(loaded) as out:
        await until_connected(loaded.settings, out)
        before: dict[str, str] = {}

        async def context() -> TakeoverContext:
            endpoints = await endpoints_of(loaded.settings, out)
            before.update(await _shedding_now(out, endpoints))
            return _context(out, endpoints)

        verdict = await judge(out.coordination, out.clock, terms, None if dry_run else context)
        empty: Json = {"brokers": [], "warnings": [], "split": "", "done": verdict.state != "dead"}
        return verdict.view() | (json_result(verdict.result, before) if verdict.result is not None else empty)


def _context(out: Outside, endpoints: Mapping[str, BrokerEndpoint]) -> TakeoverContext:
    return TakeoverContext(
        admin=out.admin,
        commands=out.admin,
        coordination=out.coordination,
        metadata=out.metadata,
        clock=out.clock,
        endpoints=endpoints,
    )


async def _shedding_now(out: Outside, endpoints: Mapping[str, BrokerEndpoint]) -> dict[str, str]:
    config = out.config
    await config.refresh(endpoints, force=True)
    words = {True: "true", False: "false", None: "unknown"}
    return {broker: words[config.sheds(broker)] for broker in sorted(endpoints)}


def json_result(result: TakeoverResult, before: Mapping[str, str]) -> Json:
    """Return the result of `takeover` or `handback` as JSON. `before`: by broker, whether it shed load before."""
    rows = [_json_broker(row, before.get(row.broker_id, "unknown")) for row in result.brokers]
    return {
        "brokers": rows,
        "warnings": list(result.warnings),
        "split": result.splits_by,
        "done": result.complete,
        "overrides_before": dict(asdict(result)["overrides"]),
    }


def _json_broker(row: BrokerRow, before: str) -> Json:
    after = row.values.get("loadBalancerSheddingEnabled", "unknown")
    return _json_row(row.broker_id, before, after, ok=row.verified, detail=row.detail)


def _json_row(broker: str, before: str, after: str, *, ok: bool, detail: str) -> Json:
    return {"broker": broker, "before": before, "after": after, "ok": ok, "detail": detail}
