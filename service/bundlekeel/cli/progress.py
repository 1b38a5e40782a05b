"""What a command that waits tells meanwhile."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text


class ProgressLine(AbstractContextManager["ProgressLine"]):
    """On standard error: on a terminal one line that is written anew, with how long it has taken; into a file or a pipe
    a line whenever something has changed."""

    def __init__(self, screen: Console | None = None) -> None:
        self._screen = screen or Console(stderr=True, soft_wrap=True, highlight=False)
        self._live = Live(console=self._screen, auto_refresh=False, transient=True)
        self._begun = time.monotonic()
        self._told = ""

    def __enter__(self) -> ProgressLine:
        """Begin."""
        if self._screen.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave no line behind on a terminal."""
        self._live.stop()

    def tell(self, text: str) -> None:
        """How far it is."""
        if self._live.is_started:
            seconds = time.monotonic() - self._begun
            self._live.update(Text(f"{text} · {seconds:.0f} s", style="dim"), refresh=True)
        elif text != self._told:
            self._screen.print(text, markup=False)
        self._told = text
