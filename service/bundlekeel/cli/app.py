"""The typer app. A command's module is imported when the command is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperGroup

from bundlekeel import __version__
from bundlekeel.cli.exit_codes import EPILOG, USAGE

if TYPE_CHECKING:
    from bundlekeel.cli.wiring import Wiring

_HELP = (
    "A load balancer sidecar for Apache Pulsar: watches every broker, says what it would move and why, "
    "and moves it safely."
)


# In the order of the help: the modules of the commands, and the commands of each.
_COMMANDS: Final = (
    ("reads", "status brokers bundles why verdicts"),
    ("channel", "channel"),
    ("intervene.changes", "pause resume mode"),
    ("intervene.manual_moves", "transfer unload split"),
    ("intervene.operations", "operations drain warm cordon uncordon pin unpin exclude include stop"),
    ("run", "run"),
    ("local", "doctor where takeover handback decide version"),
    ("intervene.deadman", "deadman"),
    ("offline.history", "replay"),
    ("offline.simulate", "simulate"),
    ("journal", "journal"),
    ("intervene.changes", "plan"),
    ("intervene.operations", "review"),
    ("intervene.thresholds", "thresholds"),
    ("quotas", "quota"),
    ("offline.history", "history"),
    ("offline.config", "config"),
    ("offline.token", "token"),
)
_MODULES: Final = {name: module for module, names in _COMMANDS for name in names.split()}
# Those whose `register` takes the wiring, too.
_WIRED: Final = frozenset({"run", "local", "intervene.deadman", "offline.history"})

# Commands that plan by themselves: without a strategy somebody installed they would do something else.
PLANNING = ("run", "decide", "config", "simulate")


class _Commands(Mapping[str, Any]):
    """Every command by its name. Looking one up imports its module; most need little of the program."""

    def __init__(self, wiring: Callable[[], Wiring]) -> None:
        self._wiring = wiring
        self._loaded: dict[str, Mapping[str, Any]] = {}

    def __getitem__(self, name: str) -> Any:
        module = _MODULES[name]
        if module not in self._loaded:
            part = typer.Typer()
            register = import_module(f"bundlekeel.cli.{module}").register
            register(part, self._wiring) if module in _WIRED else register(part)
            self._loaded[module] = typer.main.get_group(part).commands
        return self._loaded[module][name]

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


def make_app(wiring: Callable[[], Wiring], plugins: Callable[[], list[str]] = list) -> typer.Typer:
    """The whole command line. `wiring` gives what the package `wiring` knows and the CLI must not.

    `plugins` loads third parties' strategies before a command runs and tells what is wrong with them.
    """
    commands = _Commands(wiring)

    class Group(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            self.commands = commands  # type: ignore[assignment]

        def list_commands(self, ctx: Any) -> list[str]:
            return list(self.commands)  # typer's own looks each of them up

    app = typer.Typer(
        name="bundlekeel",
        cls=Group,
        help=_HELP,
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        context: typer.Context,
        show_version: bool = typer.Option(
            False, "--version", is_eager=True, help="Print the version.", callback=_version
        ),
    ) -> None:
        """Options of the program itself."""
        problems = plugins()
        for problem in problems:
            typer.echo(f"error: {problem}", err=True)
        if problems and context.invoked_subcommand in PLANNING:
            raise typer.Exit(USAGE)

    return app


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"bundlekeel {__version__}")
        raise typer.Exit
