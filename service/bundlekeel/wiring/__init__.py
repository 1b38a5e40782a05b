"""Creates a sidecar from its parts. Only this package imports the adapters, which connect to brokers and stores."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NoReturn

from bundlekeel.cli.app import make_app, without
from bundlekeel.cli.exit_codes import output_written
from bundlekeel.wiring.features import commands
from bundlekeel.wiring.plugins import load_plugins

if TYPE_CHECKING:
    from bundlekeel.cli.wiring import Wiring
    from bundlekeel.settings.load import LoadedSettings
    from bundlekeel.wiring.outside import Outside

# structlog and httpx import these modules if they are installed, although Bundlekeel does not use them.
_NEEDLESS: Final = ("rich", "httpx._main")


def main(opened: Callable[[LoadedSettings], Outside] | None = None) -> None:
    """Run the `bundlekeel` command. `opened`: creates the adapters; None: `outside.open_outside`."""
    # Handle SIGTERM: without a handler, the first process of a container ignores it and runs until it is killed.
    signal.signal(signal.SIGTERM, _end)
    with output_written():
        make_app(partial(_wiring, opened), commands(), load_plugins)(prog_name="bundlekeel")


def _end(number: int, _: object) -> NoReturn:
    """End the command immediately with the usual exit code of a signal (128 + `number`)."""
    raise SystemExit(128 + number)


def _wiring(opened: Callable[[LoadedSettings], Outside] | None) -> Wiring:
    # Import it only if needed: most commands use no adapters, and this import takes up to two seconds.
    with without(*_NEEDLESS):
        from bundlekeel.wiring.commands import Bootstrap  # noqa: PLC0415

    # httpcore tries to import sniffio for each request. If sniffio is not installed, this entry saves up to 1 ms.
    if find_spec("sniffio") is None:
        sys.modules["sniffio"] = None  # type: ignore[assignment]
    return Bootstrap(opened)
