"""Random examples of what other processes may have written where Bundlekeel expects a kind of input."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from bundlekeel.model.errors import AdminApiError, CodecError, HistoryError, ThresholdsError

BUNDLE: Final = "t/n/0x00000000_0xffffffff"


# Nodes of ZooKeeper have at most 1 MiB. Longer responses are decoded in another process, longer reports in a thread.
LONGEST: Final = 4 * 1024 * 1024


@dataclass(frozen=True)
class Kind:
    """One kind of foreign bytes: how they are read, a usual example, and whether they are stored compressed."""

    read: Callable[[bytes], object]
    usual: bytes
    packed: bool = False


_MIB = 1024 * 1024
# Each is larger than the limits, deeper, or longer than a number may be; or small, and large once it is unpacked.
HOSTILE: Final[list[bytes]] = [
    b"[" * 200_000,
    b'{"a":' * 100_000,
    b'{"report":' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"report":' + b'["]",' * 900 + b"1" + b"]" * 900 + b"}",
    b"[" + b"1," * 400_000 + b"1]",
    b'{"wall_ms":' + b"9" * 400 + b"}",
    b'{"epoch":' + b"9" * 100_000 + b"}",
    b'{"reason":"\\ud800\\u001b[2J"}',
    b'{"reason":"' + b"\\u001b" * 100_000 + b'"}',
    b'"' * _MIB,
    b"\\" * _MIB,
    b"\xff" * _MIB,
    b"<title>" + b" " * _MIB,
    b"{" + b" " * 8 * _MIB,
    b"pulsar_broker_lookup_failures_total{" + b"} " * 100_000,
    zlib.compress(b" " * 80 * _MIB),
    zlib.compress(b"[" * 20 * _MIB),
    zlib.compress(b'{"mode":"' + b" " * 7 * _MIB + b'"}'),
    gzip.compress(b" " * 20 * _MIB),
]
# Spellings of numbers and names: too long, not finite, negative, with units, in other scripts, harmful elsewhere.
ODD: Final[tuple[str, ...]] = (
    *("9" * 5_000, "-" + "9" * 5_000, "0." + "9" * 5_000, "9" * 20, "inf", "-Infinity", "nan", "NaN", "1e400", "-1"),
    *(
        "0",
        "-0",
        "",
        " ",
        " 7 ",
        "1_000",
        "0x10",
        "0b1",
        "1e5",
        "1.5",
        "\u0663",
        "\u00b2",
        "10s",
        "5 MB",
        "5Mi",
        "100%",
    ),
    *(
        "2147483648",
        "9223372036854775808",
        "null",
        "true",
        "TRUE",
        "\ud800",
        "\x1b[2J",
        "\x9b",
        "\u202e",
        "\0",
        "a" * 300,
    ),
    *("[", "[::1", "a:99999", "a:x", "a..b", "zk:[::1", "zk:a:99999/b", "metadata-store:zk:", "../..", BUNDLE, "t/n"),
    *("0x00000000_0xffffffff", "0xffffffff_0x00000000", "x-partition-" + "9" * 5_000, "4." + "9" * 5_000 + ".0"),
)
_NUMBERS: Final[tuple[float, ...]] = (
    *(
        0,
        -1,
        1,
        -5,
        5,
        2**31 - 1,
        2**31,
        2**53,
        2**53 + 1,
        2**63 - 1,
        2**63,
        -(2**63),
        10**12,
        10**17,
        10**60,
        10**4_000,
    ),
    *(0.5, -0.5, 1e18, 1e36, 1e300, -1e300, float("nan"), float("inf"), float("-inf")),
)
_PIECES: Final = (b"\\ud800", b"\x1b", b"9" * 30, b"[", b"]", b'"', b"-", b"", b"\0", b"\xff", b"{", b"e9", b".", b",")


def example(kind: Kind, number: int) -> bytes:
    """Return the example of a kind with this number: first all of `HOSTILE`, then random ones.

    They are any bytes, an odd word, the usual bytes damaged, or the usual JSON with other values in it.
    """
    if number < len(HOSTILE):
        return HOSTILE[number][:LONGEST]
    draw = random.Random(number)
    way = draw.randrange(20)
    if way < 2:
        data = draw.randbytes(draw.randrange(100))
    elif way < 5:
        data = draw.choice(ODD).encode("utf-8", "surrogatepass")
    elif way < 8 or kind.usual[:2] not in (b'{"', b"[{"):
        data = kind.usual
        for _ in range(draw.randint(1, 3)):
            at = draw.randint(0, len(data))
            piece = draw.choice(_PIECES) if draw.random() < 0.7 else draw.randbytes(draw.randrange(5))
            data = data[:at] + piece + data[at + draw.randrange(5) :]
    else:
        value = json.loads(kind.usual)
        for _ in range(draw.randint(1, 3)):
            _replace_one(draw, value)
        data = json.dumps(value, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")
    return zlib.compress(data) if kind.packed and draw.random() < 0.95 else data


def _replace_one(draw: random.Random, value: Any) -> None:
    """Replace one value in a JSON document, a number mostly by another number."""
    while value:
        place = draw.choice(list(value) if isinstance(value, dict) else range(len(value)))
        inner = value[place]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.9:
            value = inner
            continue
        same = isinstance(inner, int | float) and draw.random() < 0.8
        value[place] = draw.choice(_NUMBERS) if same else _any_value(draw, 3)
        return


def _any_value(draw: random.Random, depth: int) -> Any:
    way = draw.randrange(8 if depth else 6)
    if way < 2:
        return draw.choice(_NUMBERS)
    if way < 4:
        return draw.choice(ODD)
    if way < 6:
        return draw.choice((None, True, False, draw.random(), draw.getrandbits(70)))
    inner = [_any_value(draw, depth - 1) for _ in range(draw.randrange(4))]
    return inner if way == 6 else {draw.choice(ODD): item for item in inner}


def read_one(kind: Kind, data: bytes) -> None:
    """Read it: a value, or the one error (a caller may have made another error of ours of it)."""
    try:
        kind.read(data)
    except (CodecError, AdminApiError, HistoryError, ThresholdsError) as error:
        str(error).encode()
