"""Conversion of all numbers from outside: broker settings, names of nodes, labels, headers, reports.

`int` and `float` raise ValueError for 5,000 digits, and return `inf`, `nan` or integers that overflow later. The
functions here raise CodecError in all these cases, with the field and the value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError

# No broker reaches such a value, and sums and squares of larger numbers would overflow.
MAX_NUMBER: Final = 1e18
MAX_INTEGER: Final = 2**53
# Java's int. Seconds and minutes in broker settings are of this type.
MAX_INT: Final = 2**31 - 1
# Start of the year 2200, Unix ms. Calendars end with the year 9999, and the difference of two clocks may be added.
MAX_TIME_MS: Final = 7_258_118_400_000
# The longest spelling of a double has 24 characters.
_LONGEST: Final = 40
_SHOWN: Final = 40


def integer(value: object, *, field: str, lowest: int = 0, highest: int = MAX_INTEGER, base: int = 10) -> int:
    """Return the integer in `value`: a string in `base`, or for base 10 also a number without a fraction.

    Raises:
        CodecError: it is not an integer, or not between `lowest` and `highest`.
    """
    result: int | None = None
    if isinstance(value, str):
        with suppress(ValueError):
            result = int(_short(value), base)
    elif isinstance(value, int) and not isinstance(value, bool) and base == 10:
        result = value
    elif isinstance(value, float) and value.is_integer():
        result = int(value)
    if result is None:
        raise _refused(field, value, "is not an integer", Code.WRONG_TYPE)
    if not lowest <= result <= highest:
        raise _refused(field, value, f"is not between {lowest} and {highest}", Code.NOT_A_NUMBER)
    return result


def number(value: object, *, field: str, lowest: float = 0.0, highest: float = MAX_NUMBER) -> float:
    """Return the finite number in `value`, which is a string or a number.

    Raises:
        CodecError: it is not a number, not finite, or not between `lowest` and `highest`.
    """
    result: float | None = None
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            result = float(_short(value) if isinstance(value, str) else value)
        except ValueError:
            result = None
        except OverflowError:
            result = math.inf
    if result is None:
        raise _refused(field, value, "is not a number", Code.WRONG_TYPE)
    if not lowest <= result <= highest:
        raise _refused(field, value, f"is not between {lowest:g} and {highest:g}", Code.NOT_A_NUMBER)
    return result


def setting(values: Mapping[str, object], key: str, default: float, *, lowest: float = 0.0) -> float:
    """Return the number of a broker setting; `default` if it is missing or not usable."""
    try:
        return number(values.get(key, default), field=key, lowest=lowest, highest=MAX_INT)
    except CodecError:
        return default


def _short(text: str) -> str:
    """Return `text` without whitespace around it; "" if it cannot be a number."""
    text = text.strip()
    return text if len(text) <= _LONGEST and text.isascii() and "_" not in text else ""


def _refused(field: str, value: object, why: str, code: Code) -> CodecError:
    # An integer of 5,000 digits cannot be shown in decimal.
    text = hex(value) if isinstance(value, int) and abs(value) > MAX_INTEGER else str(value)
    quoted = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
    return CodecError(f"{field} {quoted!r} {why}", code=code, field=field)
