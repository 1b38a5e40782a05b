"""Logging to stderr: events with fields, without secrets.

No code logs a secret on purpose, but a library's message, a traceback or a response can contain one. So the log
replaces secret values of the settings, and the values of fields with certain names. It also replaces text that looks
like a bearer token, a JWT or a token of Bundlekeel.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, MutableMapping
from types import TracebackType
from typing import Any, Final, TextIO, cast
from urllib.parse import quote, quote_plus

import structlog
from pydantic import BaseModel, SecretStr

from bundlekeel.pulsar.formats.external_input import clean_lines
from bundlekeel.settings.model import Settings
from bundlekeel.settings.schema import HIDDEN, SECRET_WORDS

_LOOKS_SECRET: Final = re.compile(
    r"(?P<scheme>(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"  # a header's value
    r"|eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*"  # a JWT
    r"|\bbk\.[A-Za-z0-9_@-]+\.[A-Za-z0-9_-]{16,}",  # a token of Bundlekeel's API
    re.IGNORECASE,
)
# Secrets with fewer characters are not replaced: they occur in ordinary words, so the log would become unreadable.
_SHORTEST_SECRET: Final = 4
# Fields that contain a path or a number, and no secret, although their names look like secrets.
_HARMLESS: Final = ("_file", "_files", "_count")


class Redactor:
    """Replaces secrets in text and in structlog events."""

    def __init__(self, secrets: Iterator[str] | tuple[str, ...] = ()) -> None:
        values = [value for value in secrets if len(value) >= _SHORTEST_SECRET]
        forms = sorted({form for value in values for form in _forms(value)}, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, forms))) if forms else None

    def text(self, text: str) -> str:
        """Return the text without secrets and control characters."""
        if self._secrets is not None:
            text = self._secrets.sub(HIDDEN, text)
        return clean_lines(_LOOKS_SECRET.sub(lambda match: (match["scheme"] or "") + HIDDEN, text))

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        """Replace secrets in an event. Use it as the last structlog processor before the renderer."""
        return {key: self._value(key, value) for key, value in event.items()}

    def _value(self, key: str, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        lower = key.lower()
        if any(word in lower for word in (*SECRET_WORDS, "authorization")) and not lower.endswith(_HARMLESS):
            return HIDDEN
        if isinstance(value, Mapping):
            return {str(inner): self._value(str(inner), item) for inner, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._value("", item) for item in value]
        return self.text(value if isinstance(value, str) else str(value))


def _forms(secret: str) -> set[str]:
    """Return the ways in which a secret can appear: in text, a `repr`, JSON, JSON within JSON, and a URL."""
    in_json = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    twice = {json.dumps(form)[1:-1] for form in in_json}
    return {secret, repr(secret)[1:-1], quote(secret, safe=""), quote_plus(secret), *in_json, *twice}


class _Forgiving:
    """An output stream that ignores errors, because a closed pipe or full disk must not end a cycle or block a stop."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write the text, and ignore errors."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)

    def flush(self) -> None:
        """Flush the stream, and ignore errors."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


class _Formatter(logging.Formatter):
    """Formats log entries of libraries that use `logging` as structlog does."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(levelname)s:%(name)s:%(message)s")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of an entry, with its traceback."""
        return self._redactor.text(super().format(record))


def secrets_of(model: BaseModel) -> Iterator[str]:
    """Yield all secret values in the settings `model`, including nested ones."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, SecretStr):
            yield value.get_secret_value()
        elif isinstance(value, BaseModel):
            yield from secrets_of(value)
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, BaseModel):
                    yield from secrets_of(item)


def configure_logging(settings: Settings, level: str = "") -> None:
    """Log with structlog to stderr: as JSON unless stderr is a terminal. Libraries log only warnings.

    `level`: overrides the level of the settings, for manual commands."""
    wanted = settings.logging.format
    redactor = Redactor(secrets_of(settings))
    console = wanted == "console" or (wanted == "auto" and sys.stderr.isatty())
    renderer = (
        structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ)
        if console
        else (structlog.processors.JSONRenderer())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redactor,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelName((level or settings.logging.level).upper())
        ),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Forgiving(sys.stderr))),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(redactor))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    redact_last_words(redactor)


def redact_last_words(redactor: Redactor) -> None:
    """Replace secrets in errors that Python itself prints: uncaught errors of threads, and errors of finalizers."""

    def report(
        kind: type[BaseException], error: BaseException | None, trace: TracebackType | None, where: str = ""
    ) -> None:
        sys.stderr.write(redactor.text(where + "".join(traceback.format_exception(kind, error, trace))))

    def thread_ended(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is not SystemExit:
            name = args.thread.name if args.thread is not None else "a thread"
            report(args.exc_type, args.exc_value, args.exc_traceback, f"error in {name}:\n")

    def not_raised(args: sys.UnraisableHookArgs) -> None:
        report(args.exc_type, args.exc_value, args.exc_traceback, f"{args.err_msg or 'error ignored'}:\n")

    sys.excepthook = report
    threading.excepthook = thread_ended
    sys.unraisablehook = not_raised
