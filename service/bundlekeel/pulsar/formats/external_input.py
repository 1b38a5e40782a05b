"""Convert bytes that other processes wrote to values, within limits, or raise `CodecError`. No other module does that.

Decoded bytes, nesting, the number of values and the digits of integers are limited. Each limit is checked before the
data cost time or memory. Text is UTF-8 with replacement. Control characters and lone surrogates are replaced, so that
every text can be encoded again and shown on a terminal. No regular expression is used.

Data have at most `Limit.nbytes` bytes. Reading takes at most `GROWTH_BYTES` of additional memory (for `DOCUMENT`; twice
as much for `REPORT`).

Pulsar's records are then read field by field (`Fields`). An unusable field is replaced by a default and recorded as a
fault, a (code, field) pair. The decoder of the record decides on the effect of a fault. Jackson writes NaN and infinity
as the strings `"NaN"` and `"Infinity"` and omits nulls; other writers quote numbers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.model.numbers import MAX_INTEGER, MAX_NUMBER, MAX_TIME_MS, number

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Maximum of decoded bytes, and of values (counted by commas and brackets, also those inside strings)."""

    nbytes: int
    values: int


# One node, message, request or response.
DOCUMENT: Final = Limit(nbytes=8 * 1024 * 1024, values=200_000)
# A broker's report. Pulsar starts its processes with a `jute.maxbuffer` of 10 MiB, which hold up to 53,000 bundles:
# each has at least 195 bytes and 11 values.
REPORT: Final = Limit(nbytes=10 * 1024 * 1024, values=600_000)
# Compressed documents. Nodes have at most 1 MiB, those of Bundlekeel 256 KiB, which contain about 1.5 MiB.
INFLATED_BYTES: Final = 4 * 1024 * 1024
# Metrics of thousands of namespaces, read in a thread.
LARGE: Final = Limit(nbytes=32 * 1024 * 1024, values=2_500_000)
GROWTH_BYTES: Final = 64 * 1024 * 1024

_BUILDING: Final = threading.Lock()
_BUILT: Final = set[object]()
# Fields with times in ms whose names do not end with `_ms`, also as the values of a mapping.
_TIMES: Final = frozenset({"reported", "compared", "undone", "reverted"})
# Documents also contain squares of rates, which have this limit.
_MAX_SQUARE: Final = MAX_NUMBER**2
# Real records nest 12 deep at most; Python's own recursion ends near 1,000.
MAX_DEPTH: Final = 64
# A Java long has 19 digits and a sign. Longer numbers become floats, which readers of integers reject.
_MAX_DIGITS: Final = 20
_LONG: Final = b"0" * _MAX_DIGITS
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_NO_VALUES: Final = bytes(byte for byte in range(256) if byte not in b"[]{},")
_NO_NESTING: Final = bytes(byte for byte in range(256) if byte not in b'[]{}"')
# Characters that change the direction of the text around them, so that a name resembles another one; line separators.
_TURNING: Final = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_CLEANED: Final = dict.fromkeys(
    (*range(32), *range(127, 160), *_TURNING, *range(0xD800, 0xE000)), "\ufffd"
) | dict.fromkeys(map(ord, "\t\n\r"), " ")


# First bytes of characters to clean, in UTF-8. Most letters have other first bytes, so text with "ü" is still read
# fast.
_CLEANED_STARTS: Final = (b"\xc2", b"\xd8\x9c", b"\xe2\x80", b"\xe2\x81", b"\xed")


def unreadable(what: str, why: object, *, code: str = Code.NOT_JSON, field: str = "") -> CodecError:
    """Return the error for unreadable data. `what`: name of the data. `why`: the reason."""
    return CodecError(f"{what} cannot be read: {clean(str(why))[:200]}", code=code, field=field)


def clean(text: str) -> str:
    """Return `text` without control characters, direction marks and lone surrogates, for files and terminals."""
    return text if text.isprintable() else text.translate(_CLEANED)


def clean_lines(text: str) -> str:
    """Return `text` cleaned as by `clean`, but with its line feeds."""
    return text if text.isprintable() else "\n".join(map(clean, text.split("\n")))


def text_of(data: bytes) -> str:
    """Decode UTF-8, and replace invalid bytes and control characters, except line feeds."""
    return clean_lines(data.decode("utf-8", "replace"))


def inflated(data: bytes, *, what: str) -> bytes:
    """Decompress `data` with zlib. Raises CodecError if it is cut off or larger than the limit."""
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(data, INFLATED_BYTES + 1)
    except zlib.error as error:
        raise unreadable(what, error) from None
    if len(plain) > INFLATED_BYTES:
        raise _too_large(what, INFLATED_BYTES)
    if not inflater.eof:
        raise unreadable(what, "it is cut off")
    return plain


def load(data: bytes, *, what: str, limit: Limit = DOCUMENT, exact: bool = False, finite: bool = False) -> Any:
    """Return the JSON in `data` as dicts, lists and scalars, with clean strings. Raises CodecError.

    NaN, infinities and too large numbers become floats; `finite` rejects them. `exact` rejects bytes that are not
    UTF-8: otherwise two names could become equal by replacements.
    """
    check_size(data, what, limit)
    try:
        text = data.decode("utf-8", "strict" if exact else "replace")
        if _is_plain(data, limit) and not finite:
            with contextlib.suppress(ValueError):  # an unescaped control character
                return json.loads(text)
        return cleaned(json.loads(text, parse_int=_integer, strict=False), finite=finite)
    except (ValueError, RecursionError) as error:
        raise unreadable(what, error) from None


def convert(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """Return a JSON value as a value of type `kind`. Raises msgspec.ValidationError."""
    return msgspec.convert(value, prepared(kind), strict=strict)


def prepared(kind: type[T]) -> type[T]:
    """Return `kind` after msgspec has built its fields.

    msgspec builds them at the first use, and the process crashes if several threads do so at the same time.
    """
    with _BUILDING:
        if kind not in _BUILT:
            msgspec.json.Decoder(kind)
            _BUILT.add(kind)
    return kind


def read(data: bytes, kind: type[T], *, what: str, limit: Limit = DOCUMENT, exact: bool = False) -> T:
    """Return the JSON in `data` as a value of type `kind`, with clean strings. Numbers and booleans may be strings.

    Data that need no cleaning are passed directly to the typed decoder. Raises CodecError with the field that does not
    fit.
    """
    check_size(data, what, limit)
    try:
        if _is_plain(data, limit):
            with contextlib.suppress(UnicodeDecodeError):
                return msgspec.json.decode(data, type=prepared(kind), strict=False)
        return convert(load(data, what=what, limit=limit, exact=exact, finite=True), kind, strict=False)
    except msgspec.ValidationError as error:
        raise unreadable(what, error, code=Code.WRONG_TYPE) from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise unreadable(what, error) from None


def cleaned(value: Any, *, text: Callable[[str], str] = clean, finite: bool = False, depth: int = MAX_DEPTH) -> Any:
    """Return a JSON value with each string passed through `text`, and with tuples as lists.

    Raises ValueError if the value is nested deeper than `depth`, or (`finite`) contains a number that is not finite.
    """
    if isinstance(value, str):
        return text(value)
    if finite and isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a number")
    if not isinstance(value, dict | list | tuple):
        return value
    if not depth:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    if isinstance(value, list | tuple):
        return [cleaned(item, text=text, finite=finite, depth=depth - 1) for item in value]
    return {clean(key): cleaned(item, text=text, finite=finite, depth=depth - 1) for key, item in value.items()}


def utc(wall_ms: float, *, field: str) -> datetime:
    """Return a time (Unix ms) in UTC. Raises CodecError if it is not between the years 1970 and 2200."""
    return datetime.fromtimestamp(number(wall_ms, field=field, highest=MAX_TIME_MS) / 1000, UTC)


def check_ranges(value: Any, *, what: str, name: str = "") -> None:
    """Check all times and numbers in a document of Bundlekeel. Raises CodecError with the first field out of range.

    Fields `..._ms`, and fields in `_TIMES`, are Unix times in ms from 0 (no time) to `MAX_TIME_MS`: later times cannot
    be displayed or adjusted to another clock. Counts are -1 (no value) or more.
    """
    kind: Any = type(value)
    if kind is int or kind is float:
        _check_range(value, what, name)
    elif kind is dict:
        for key, item in value.items():
            if type(item) not in _WITHOUT_RANGE:
                check_ranges(item, what=what, name=name if name in _TIMES else key)
    elif kind is list or kind is tuple:
        for item in value:
            if type(item) not in _WITHOUT_RANGE:
                check_ranges(item, what=what, name=name)
    elif (fields := _fields_of(kind)) is not None:
        for field in fields:
            item = getattr(value, field)
            if type(item) not in _WITHOUT_RANGE:
                check_ranges(item, what=what, name=field)


_WITHOUT_RANGE: Final = frozenset({str, bool, type(None)})


def _check_range(value: float, what: str, name: str) -> None:
    lowest: float = -1
    highest: float = MAX_INTEGER
    if name.endswith("_ms") or name in _TIMES:
        lowest, highest = 0, MAX_TIME_MS
    elif isinstance(value, float):
        lowest, highest = -_MAX_SQUARE, _MAX_SQUARE
    if not lowest <= value <= highest:
        raise unreadable(what, f"{name} is not between {lowest:.15g} and {highest:.15g}", field=name)


@cache
def _fields_of(kind: type) -> tuple[str, ...] | None:
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def check_size(data: bytes, what: str, limit: Limit) -> None:
    """Raise CodecError if the data are empty, or have more bytes or values than the limit."""
    if len(data) > limit.nbytes:
        raise _too_large(what, limit.nbytes)
    if not data.strip():
        raise unreadable(what, "it is empty", code=Code.EMPTY_REPORT)
    if has_more_values(data, limit.values):
        raise unreadable(what, f"it holds more than {limit.values} values", code=Code.REPORT_TOO_LARGE)


def has_more_values(data: bytes, most: int) -> bool:
    """Return whether the data have more values than `most`, as `Limit` counts them."""
    return len(data) > most and len(data.translate(None, _NO_VALUES)) > most


def _too_large(what: str, nbytes: int) -> CodecError:
    return unreadable(what, f"it has more than {nbytes} bytes", code=Code.REPORT_TOO_LARGE)


def _is_plain(data: bytes, limit: Limit) -> bool:
    """Return whether a decoder may read the data unchanged: no characters to clean, no long integer, not nested
    deeply."""
    if b"\\" in data:
        # Other escapes may produce characters that must be cleaned.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if b"\\" in data or b"\x7f" in data or _LONG in data.translate(_DIGITS):
        return False
    if not data.isascii() and any(start in data for start in _CLEANED_STARTS):
        return False
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return True
    return _is_shallow(data, limit)


def _is_shallow(data: bytes, limit: Limit) -> bool:
    import numpy as np  # noqa: PLC0415 - the command line reads answers, too, and has no other use for it

    nesting = np.frombuffer(data.translate(None, _NO_NESTING), dtype=np.uint8)
    if len(nesting) > 8 * limit.values:
        return False
    steps = np.isin(nesting, list(b"[{")).astype(np.int32) - np.isin(nesting, list(b"]}"))
    steps[np.cumsum(nesting == ord('"')) % 2 == 1] = 0  # inside a text
    return int(np.cumsum(steps).max()) <= MAX_DEPTH


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


# A record may contain thousands of unusable fields. Only this many are listed; the others are counted.
MAX_FAULTS: Final = 100


def load_object(
    data: bytes, *, what: str = "the record", limit: Limit = DOCUMENT, exact: bool = False
) -> dict[str, Any]:
    """Return the JSON object in `data`, with the syntax of Python's json (NaN is a number). Raises CodecError."""
    value = load(data, what=what, limit=limit, exact=exact)
    if not isinstance(value, dict):
        raise CodecError(f"{what} is a {type(value).__name__}, not an object", code=Code.WRONG_TYPE)
    return value


class Faults:
    """Collects the fields that were replaced by defaults while a record is read."""

    def __init__(self) -> None:
        self._faults: dict[tuple[str, str], None] = {}
        self._more = 0

    def add(self, code: Code, field: str) -> None:
        """Add one unusable field, with the reason as a code. Repetitions count once."""
        if len(self._faults) < MAX_FAULTS:
            self._faults[(code.value, clean(field)[:200])] = None
        else:
            self._more += 1

    def as_tuple(self) -> tuple[tuple[str, str], ...]:
        """Return all faults as (code, field) pairs, in the order of `add`."""
        rest = ((Code.IMPUTED.value, f"... and {self._more} more"),) if self._more else ()
        return (*self._faults, *rest)


class Fields:
    """One JSON object, read field by field; unusable fields are added to `faults`. `prefix`: its path in the record."""

    def __init__(self, values: Mapping[str, Any], faults: Faults, prefix: str = "") -> None:
        self._values = values
        self._faults = faults
        self._prefix = prefix

    def text(self, name: str) -> str:
        """Return a string field. Absent or null is "" and not a fault, because brokers omit such fields."""
        value = self._values.get(name)
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        self._faults.add(Code.WRONG_TYPE, self._prefix + name)
        return ""

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean field; the strings `"true"` and `"false"` are accepted."""
        value = self._values.get(name)
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return bool(value == "true")
        if value is not None:
            self._faults.add(Code.WRONG_TYPE, self._prefix + name)
        return default

    def number(self, name: str, *, required: bool = True, signed: bool = False) -> float:
        """Return a finite number. Unless `signed`, a negative number becomes 0 with a fault."""
        value = self._values.get(name)
        if value is None:
            if required:
                self._faults.add(Code.IMPUTED, self._prefix + name)
            return 0.0
        number = _as_float(value)
        if number is None:
            self._faults.add(Code.WRONG_TYPE, self._prefix + name)
            return 0.0
        if not math.isfinite(number) or abs(number) > MAX_NUMBER:
            self._faults.add(Code.NOT_A_NUMBER, self._prefix + name)
            return 0.0
        if number < 0 and not signed:
            self._faults.add(Code.NEGATIVE_VALUE, self._prefix + name)
            return 0.0
        return number

    def integer(self, name: str, *, required: bool = False) -> int:
        """Return an integer >= 0; fractions are cut off, as Jackson does."""
        value = self._values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INTEGER:
            return value
        number = self.number(name, required=required)
        if number > MAX_INTEGER:
            self._faults.add(Code.NOT_A_NUMBER, self._prefix + name)
            return 0
        return int(number)

    def child(self, name: str, *, required: bool = True) -> Fields:
        """Return a nested object; empty if it is absent or of another type."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, dict):
            self._faults.add(Code.WRONG_TYPE, self._prefix + name)
        elif value is None and required:
            self._faults.add(Code.IMPUTED, self._prefix + name)
        return Fields(value if isinstance(value, dict) else {}, self._faults, f"{self._prefix}{name}.")

    def items(self, name: str) -> list[Any]:
        """Return a nested array; empty if it is absent or of another type."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, list):
            self._faults.add(Code.WRONG_TYPE, self._prefix + name)
        return value if isinstance(value, list) else []

    def names(self) -> list[str]:
        """Return the names of all fields, in the order of the JSON text."""
        return list(self._values)

    def has(self, name: str) -> bool:
        """Return whether the field exists and is not null."""
        return self._values.get(name) is not None


def _as_float(value: object) -> float | None:
    """Return a number, or a string that contains one (also `NaN`, `Infinity`), as float; None: other values."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf
