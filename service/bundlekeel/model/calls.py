"""Kinds of service methods, which the methods declare. The API limits each kind on its own (api/off_loop.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

CallKind = Literal["read", "long", "change"]
Method = TypeVar("Method", bound=Callable[..., Any])


def reads(method: Method) -> Method:
    """Mark a method that changes nothing. It has a time-out."""
    method.__dict__["call_kind"] = "read"
    return method


def reads_long(method: Method) -> Method:
    """Mark a method that changes nothing, and computes for many seconds or waits for each broker."""
    method.__dict__["call_kind"] = "long"
    return method


def kind_of(method: Callable[..., Any]) -> CallKind:
    """Return the kind of a method. A method without a mark counts as one that can change something."""
    kind: CallKind = getattr(method, "call_kind", "change")
    return kind
