"""`thresholds.json`: convert the content (`recalibration.rules.thresholds.Thresholds`) to plain values and back. Pure.

Reading rejects invalid values (`ThresholdsError` with code, field and value). Whether readable thresholds may be
adopted is decided by `recalibration.rules.thresholds.checked`. Unknown fields are ignored, unknown parameters are
rejected.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError, ThresholdsError
from bundlekeel.model.parameters import coerce
from bundlekeel.model.text_format import limits_text
from bundlekeel.recalibration.rules.thresholds import (
    FORMAT,
    MEASURES,
    RANGES,
    BootstrapInterval,
    Data,
    Evidence,
    HeldOutMeasures,
    Number,
    Proposed,
    Thresholds,
    whole,
)

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_DUST = 1e-6
# Start of the year 9999: later times cannot be displayed.
_LAST_MS = 253_370_764_800_000


def document_of(thresholds: Thresholds) -> dict[str, Any]:
    """Return the content of `thresholds.json` as plain values. Raises ThresholdsError if `thresholds_of` would reject
    them."""
    values: dict[str, Any] = json.loads(json.dumps(asdict(thresholds)))
    thresholds_of(values)
    return values


def digest_of(thresholds: Thresholds) -> str:
    """Return the digest that identifies proposed thresholds, 16 hex digits. It depends on the content only."""
    text = json.dumps(asdict(thresholds), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parsed(text: bytes | str) -> Thresholds:
    """Parse a `thresholds.json`. Raises ThresholdsError if it is invalid."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ThresholdsError(f"not JSON: {error}", code=Code.NOT_JSON) from None
    return thresholds_of(values)


def thresholds_of(mapping: object) -> Thresholds:
    """Build the content of `thresholds.json` from plain values.

    Raises ThresholdsError, with code, field and value, if the format is too new for this release, a parameter is
    unknown, a proposed value is out of range, or a type is wrong (NaN included).
    """
    top = _Reader(mapping, "")
    version = top.whole("format")
    if version > FORMAT:
        text = f"format {version}; this release reads up to {FORMAT}"
        raise ThresholdsError(text, code=Code.FUTURE_FORMAT, field="format", value=version, allowed=f"1 to {FORMAT}")
    if version < 1:
        top.fail("format", "is none", f"1 to {FORMAT}")
    return Thresholds(
        format=version,
        created_ms=top.moment("created_ms"),
        software=top.text("software"),
        strategy=top.text("strategy"),
        decision=top.text("decision"),
        parameters=_parameters(top.inner("parameters")),
        evidence=_evidence(top.inner("evidence")),
        data=_data(top.inner("data")),
        advice=top.texts("advice"),
        cluster=top.text("cluster"),
    )


def _parameters(reader: _Reader) -> dict[str, Proposed]:
    if not reader.values:
        reader.fail("", "proposes nothing", "at least one parameter")
    parameters = {}
    for name in reader.values:
        limits = RANGES.get(name)
        if limits is None:
            text = f"parameters.{name}: no parameter of this name is calibrated"
            raise ThresholdsError(
                text, code=Code.UNKNOWN_PARAMETER, field=f"parameters.{name}", value=name, allowed=", ".join(RANGES)
            )
        row = reader.inner(name)
        parameters[name] = Proposed(
            value=_value(row, name, "value", ranged=True),
            previous=_value(row, name, "previous", ranged=False),
            minimum=row.number("minimum"),
            maximum=row.number("maximum"),
            step=row.number("step", above=0.0),
            evidence=row.text("evidence"),
        )
    return parameters


def _value(row: _Reader, name: str, key: str, *, ranged: bool) -> Number:
    """Return a value of a parameter, converted to the parameter's type.

    `ranged`: raise ThresholdsError if the value is outside of the search range. Only a proposed value must be inside.
    """
    raw = row.number(key)
    where, limits = row.at(key), RANGES[name]
    allowed = f"{limits.minimum:g} to {limits.maximum:g}"
    if ranged and not limits.minimum - _DUST <= raw <= limits.maximum + _DUST:
        text = f"{where}: {raw:g} is out of range; allowed are {allowed}"
        raise ThresholdsError(text, code=Code.OUT_OF_RANGE, field=where, value=raw, allowed=allowed)
    inside = min(max(raw, limits.minimum), limits.maximum) if ranged else raw
    try:
        coerce(name, inside)
    except ConfigError as error:
        text = f"{where}: {raw:g} is not allowed; expected {error.allowed}"
        raise ThresholdsError(text, code=Code.WRONG_TYPE, field=where, value=raw, allowed=error.allowed) from None
    return int(inside) if whole(name) else float(inside)


def _evidence(reader: _Reader) -> Evidence:
    others = reader.inner("strategies")
    return Evidence(
        held_out=_days(reader, "held_out"),
        prefer=reader.text("prefer"),
        placements=reader.whole("placements", minimum=1),
        confidence=reader.number("confidence", minimum=0.5, maximum=1.0),
        previous=_measures(reader.inner("previous")),
        chosen=_measures(reader.inner("chosen")),
        difference=_measures(reader.inner("difference"), signed=True),
        strategies={name: _measures(others.inner(name)) for name in others.values},
    )


def _measures(reader: _Reader, *, signed: bool = False) -> HeldOutMeasures:
    return HeldOutMeasures(**{name: _interval(reader.inner(name), signed=signed) for name in MEASURES})


def _interval(reader: _Reader, *, signed: bool) -> BootstrapInterval:
    least = None if signed else 0.0
    mean, low, high = (reader.number(name, minimum=least) for name in ("mean", "low", "high"))
    if low > high:
        reader.fail("low", f"is above high ({high:g})", "low <= high")
    return BootstrapInterval(mean, low, high)


def _data(reader: _Reader) -> Data:
    bad = reader.inner("bad_days")
    start, end = reader.moment("from_ms"), reader.moment("until_ms")
    if end < start:
        reader.fail("until_ms", f"is before from_ms ({start})", "from_ms <= until_ms")
    return Data(
        from_ms=start,
        until_ms=end,
        days=_days(reader, "days"),
        coverage=reader.number("coverage", minimum=0.0, maximum=1.0),
        cycles=reader.whole("cycles", minimum=0),
        bad_days={day: bad.text(day) for day in bad.values},
    )


def _days(reader: _Reader, key: str) -> tuple[str, ...]:
    days = reader.texts(key)
    for day in days:
        if _DAY.fullmatch(day) is None:
            reader.fail(key, f"has {day!r}", "days as 2026-11-21")
    return days


class _Reader:
    """One JSON object of `thresholds.json`. Methods return a checked field, or raise ThresholdsError with its path and
    value."""

    def __init__(self, values: object, path: str) -> None:
        self._path = path
        if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
            self.values: Mapping[str, object] = {}
            self._refuse(path, values, "is not an object", "an object")
        elif not all(map(_is_text, values)):
            self._refuse(path, [*values], "has a name that is not Unicode text", "names in Unicode")
        else:
            self.values = values

    def at(self, key: str) -> str:
        return ".".join(part for part in (self._path, key) if part)

    def fail(self, key: str, text: str, allowed: str) -> None:
        """Raise ThresholdsError about this field."""
        self._refuse(self.at(key), self.values.get(key), text, allowed)

    def inner(self, key: str) -> _Reader:
        return _Reader(self._value(key), self.at(key))

    def text(self, key: str) -> str:
        """Return the string in field `key`. A string of more than 2000 characters is rejected."""
        value = self._value(key)
        if not isinstance(value, str) or len(value) > 2_000 or not _is_text(value):
            self.fail(key, "is not a text of at most 2000 characters", "a text")
        return str(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of strings in field `key`."""
        value = self._value(key)
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) and _is_text(item) for item in value):
            self.fail(key, "is not a list of texts", "a list of texts")
            return ()
        return tuple(value)

    def moment(self, key: str) -> int:
        """Return the time in field `key`, in Unix ms. Times after the start of the year 9999 are rejected."""
        return self.whole(key, minimum=0, maximum=_LAST_MS)

    def whole(self, key: str, *, minimum: int | None = None, maximum: int | None = None) -> int:
        value = self.number(key, minimum=minimum, maximum=maximum)
        if value != int(value):
            self.fail(key, "is not a whole number", "a whole number")
        return int(value)

    def number(
        self,
        key: str,
        *,
        minimum: float | None = None,
        maximum: float | None = None,
        above: float | None = None,
    ) -> float | int:
        """Return the finite number in field `key`. Booleans are rejected.

        `minimum`, `maximum`: allowed limits. `above`: the number must be greater. None: no such limit.
        """
        value = self._value(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300 or math.isnan(value):
            self.fail(key, "is not a finite number", "a number")
            return 0.0
        low = minimum is not None and value < minimum
        if low or (maximum is not None and value > maximum) or (above is not None and value <= above):
            limits = {"ge": minimum, "le": maximum, "gt": above}
            self.fail(key, "is out of range", limits_text(limits))
        return value

    def _value(self, key: str) -> object:
        if key not in self.values:
            self._refuse(self.at(key), None, "is missing", "a value")
        return self.values[key]

    def _refuse(self, where: str, value: object, text: str, allowed: str) -> None:
        beginning = value[:60] if isinstance(value, str | list) else value
        quoted = "" if value is None else f" {repr(beginning)[:60]}"
        raise ThresholdsError(
            f"{where or 'the document'}:{quoted} {text}; expected {allowed}",
            code=Code.WRONG_TYPE,
            field=where,
            value=value,
            allowed=allowed,
        )


def _is_text(text: str) -> bool:
    """Return whether a text is valid Unicode. JSON can contain lone surrogates, which journal and API reject."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
