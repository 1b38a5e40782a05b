"""Reading untyped JSON without ever failing on a field: what is unusable becomes a default and a fault.

Jackson writes NaN and infinity as the strings `"NaN"` and `"Infinity"` and omits nulls; other writers quote
numbers. A fault is a (code, field) pair; the reader of the record decides what a fault is worth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from bundlekeel.codec.external_input import clean, load
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import CodecError

# No broker carries this much of anything; larger numbers would overflow the sums and squares made of them.
MAX_NUMBER: Final = 1e18
MAX_INTEGER: Final = 2**53
# A record may hold thousands of bad fields; after this many they are only counted.
MAX_FAULTS: Final = 100


def load_object(data: bytes, *, what: str = "the record", exact: bool = False) -> dict[str, Any]:
    """The JSON object in `data`, with the standard library's syntax: NaN is a number. CodecError."""
    value = load(data, what=what, exact=exact)
    if not isinstance(value, dict):
        raise CodecError(f"{what} is a {type(value).__name__}, not an object", code=Code.WRONG_TYPE)
    return value


class Faults:
    """Collects what had to be imputed while a record is read."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], None] = {}
        self._more = 0

    def add(self, code: Code, field: str) -> None:
        """Note one unusable field; the same one twice counts once."""
        if len(self._found) < MAX_FAULTS:
            self._found[(code.value, clean(field)[:200])] = None
        else:
            self._more += 1

    def as_tuple(self) -> tuple[tuple[str, str], ...]:
        """All faults in the order they were met."""
        rest = ((Code.IMPUTED.value, f"... and {self._more} more"),) if self._more else ()
        return (*self._found, *rest)


class Fields:
    """One JSON object, read field by field; `prefix` says where in the record it lies."""

    def __init__(self, values: Mapping[str, Any], faults: Faults, prefix: str = "") -> None:
        self._values = values
        self._faults = faults
        self._prefix = prefix

    def text(self, name: str) -> str:
        """A string; absent or null is "" and no fault, because brokers omit what they do not have."""
        value = self._values.get(name)
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        self._faults.add(Code.WRONG_TYPE, self._prefix + name)
        return ""

    def flag(self, name: str, *, default: bool) -> bool:
        """A boolean; `"true"` and `"false"` are accepted."""
        value = self._values.get(name)
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return bool(value == "true")
        if value is not None:
            self._faults.add(Code.WRONG_TYPE, self._prefix + name)
        return default

    def number(self, name: str, *, required: bool = True, signed: bool = False) -> float:
        """A finite number; unless `signed`, a negative one counts as zero."""
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
        """A whole number >= 0; fractions are cut off, as Jackson does."""
        value = self._values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INTEGER:
            return value
        number = self.number(name, required=required)
        if number > MAX_INTEGER:
            self._faults.add(Code.NOT_A_NUMBER, self._prefix + name)
            return 0
        return int(number)

    def child(self, name: str, *, required: bool = True) -> Fields:
        """A nested object; an empty one when it is absent or something else."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, dict):
            self._faults.add(Code.WRONG_TYPE, self._prefix + name)
        elif value is None and required:
            self._faults.add(Code.IMPUTED, self._prefix + name)
        return Fields(value if isinstance(value, dict) else {}, self._faults, f"{self._prefix}{name}.")

    def items(self, name: str) -> list[Any]:
        """A nested array; empty when it is absent or something else."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, list):
            self._faults.add(Code.WRONG_TYPE, self._prefix + name)
        return value if isinstance(value, list) else []

    def names(self) -> list[str]:
        """The names of all fields, in the order of the text."""
        return list(self._values)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(name) is not None


def _as_float(value: object) -> float | None:
    """A number, or a string that spells one (`NaN`, `Infinity` included); None when it is neither."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf
