"""Unexpected values in place of a document of Pulsar, as examples of hypothesis."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from bundlekeel.model.errors import CodecError


def scalars(words: Sequence[str]) -> st.SearchStrategy[Any]:
    """Plain values of every kind and size; `words`: texts that mean something to the decoder."""
    return st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(min_value=-(10**40), max_value=10**40),
        st.floats(),
        st.text(max_size=10),
        st.sampled_from(["NaN", "Infinity", "-Infinity", "1e999", *words]),
    )


def encoded(value: Any, *, ascii_only: bool = True) -> bytes:
    """JSON as another language might write it: NaN and Infinity bare."""
    return json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


def attempt(decoder: Callable[[bytes], Any], data: bytes) -> Any:
    """The decoder's answer, or None when it refused in the one allowed way."""
    try:
        return decoder(data)
    except CodecError as error:
        assert error.code
        return None


def values(plain: st.SearchStrategy[Any], names: st.SearchStrategy[str], *, max_leaves: int) -> st.SearchStrategy[Any]:
    """Plain values, lists and objects of them, nested."""
    return st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=8),
        max_leaves=max_leaves,
    )
