"""A wrapper of a sidecar's service that records calls, and with which a test changes single results."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from bundlekeel.api.service import Service


class Spied:
    """`target` with its calls recorded. Calls have the name of the method, such as `state` or `requests.drain`.

    `calls`: names and arguments. `fail`: by name, the error that a call raises. `results`: by name, a function that
    changes the result of a call.
    """

    def __init__(self, target: Service) -> None:
        self.target = target
        self.reset()

    def reset(self) -> None:
        """Forget the calls, and change nothing any more."""
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.fail: dict[str, Exception] = {}
        self.results: dict[str, Callable[[Any], Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return self.spy(name, getattr(self.target, name))

    @property
    def requests(self) -> _Part:
        """The requests of operators."""
        return _Part(self, "requests", lambda: self.target.requests)

    @property
    def features(self) -> dict[str, _Part]:
        """The operations of each feature."""
        return {name: _Part(self, name, partial(self._feature, name)) for name in self.target.features}

    def _feature(self, name: str) -> Any:
        return self.target.features[name]

    def asked(self, name: str) -> list[dict[str, Any]]:
        """Return the arguments of each call of a method."""
        return [arguments for called, arguments in self.calls if called == name]

    def spy(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method with its calls recorded."""
        if inspect.iscoroutinefunction(method):
            return partial(self._call_async, name, method)
        return partial(self._call, name, method)

    def _call(self, name: str, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._record(name, method, args, options)
        return self._changed(name, method(*args, **options))

    async def _call_async(self, name: str, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._record(name, method, args, options)
        return self._changed(name, await method(*args, **options))

    def _record(self, name: str, method: Callable[..., Any], args: Any, options: Any) -> None:
        self.calls.append((name, dict(inspect.signature(method).bind(*args, **options).arguments)))
        if name in self.fail:
            raise self.fail[name]

    def _changed(self, name: str, result: Any) -> Any:
        return self.results[name](result) if name in self.results else result


class _Part:
    """The requests or a feature of a spied service. `target`: returns it."""

    def __init__(self, whole: Spied, name: str, target: Callable[[], Any]) -> None:
        self._whole, self._name, self._target = whole, name, target

    def __getattr__(self, name: str) -> Any:
        return self._whole.spy(f"{self._name}.{name}", getattr(self._target(), name))


def with_fields(**fields: Any) -> Callable[[Any], Any]:
    """Return a function that replaces fields of a response."""
    return lambda response: replace(response, **fields)


def always(response: Any) -> Callable[[Any], Any]:
    """Return a function that replaces a response by this one."""
    return lambda _: response
