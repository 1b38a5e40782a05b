"""The typer app of the command line. It imports the module of a command only when that command is used."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from bundlekeel import __version__
from bundlekeel.cli.examples import examples_of
from bundlekeel.cli.exit_codes import EPILOG, USAGE, report_usage_error
from bundlekeel.model.text_format import limits_text, suggest

if TYPE_CHECKING:
    from bundlekeel.cli.wiring import Wiring

_HELP = (
    "A load balancer sidecar for Apache Pulsar: it watches every broker, shows which bundles it would move and why, "
    "and moves them safely. `bundlekeel-recalibrate` computes thresholds from its recorded history.\n\n"
    "Start with `config init`, which writes a settings file, and `doctor`, which tests it. Commands find a running "
    "sidecar by that file: -c FILE, or BUNDLEKEEL_CONFIG."
)


@dataclass(frozen=True, slots=True)
class CommandModule:
    """Commands of one module `bundlekeel.MODULE`, and the panel of the help that lists them.

    `names`: the commands, separated by spaces. `wired`: `register` of the module also needs `Wiring`, the access to
    brokers and stores. `plans`: the commands make plans, so they fail if an installed strategy cannot be loaded,
    instead of using another strategy. `last`: list them after all other commands of the panel.
    """

    panel: str
    module: str
    names: str
    wired: bool = False
    plans: bool = False
    last: bool = False


_PANELS: Final = ("Look", "Ask", "Intervene", "Go live", "Offline")
# The commands of the sidecar, for each panel in the order of the help.
_OWN: Final = (
    CommandModule("Look", "cli.reads", "status brokers bundles summary verdicts"),
    CommandModule("Look", "cli.journal", "journal"),
    CommandModule("Look", "cli.operations", "operations"),
    CommandModule("Look", "cli.channel", "channel"),
    CommandModule("Ask", "cli.reads", "why"),
    CommandModule("Ask", "cli.local", "where", wired=True),
    CommandModule("Ask", "cli.plan", "plan"),
    CommandModule("Intervene", "cli.operations", "pause resume mode"),
    CommandModule("Intervene", "cli.manual_moves", "transfer unload split"),
    CommandModule(
        "Intervene", "cli.operations", "drain warm cordon uncordon restart pin unpin exclude include stop review"
    ),
    CommandModule("Go live", "cli.config", "config", plans=True),
    CommandModule("Go live", "cli.local", "doctor", wired=True),
    CommandModule("Go live", "cli.config", "token"),
    CommandModule("Go live", "cli.run", "run", wired=True, plans=True),
    CommandModule("Go live", "cli.local", "takeover handback uninstall", wired=True),
    CommandModule("Go live", "cli.deadman", "deadman", wired=True),
    CommandModule("Offline", "cli.version", "version", last=True),
)

# Longest path in Linux, in bytes.
_MAX_TEXT: Final = 4_095

# Part of a pydantic message, such as "Input should be a valid number, unable to parse string as a number".
_EXPECTED: Final = re.compile(r"Input should be ([^,]+)")


def _shown_type(label: str | None, _ctx: Any) -> str:
    """Return the type of an option's value for the help, for example `<number>` for `<int>` and `<list[int]>`."""
    plain = re.sub(r"list\[(.*)\]", r"\1", label or "")
    return re.sub(r"\b(int|float)( range)?\b", "number", plain).replace("<str>", "<text>")


def _expected(error: Any, words: list[str]) -> str:
    """Return the error text for the value of an option or argument: the value, and which values are allowed.

    `words`: the command line, split at blanks and `=`, which contains the value.
    """
    message: str = error.message.removeprefix("Value error, ")
    match = _EXPECTED.match(message)
    if match is None or error.param is None:
        return message
    values = [after for name, after in itertools.pairwise(words) if name in error.param.opts]
    info = error.param.type_descriptor.parameter_info
    limits = limits_text({"ge": getattr(info, "min", None), "le": getattr(info, "max", None)})
    kinds = {"a valid integer": "a whole number", "a valid number": "a number"}
    allowed = ", ".join(filter(None, (kinds.get(match[1], "" if limits else match[1]), limits)))
    # Show the last value, because it is the one that applies if an option occurs twice.
    return "".join(repr(value) for value in values[-1:]) + f": expected {allowed}"


def _value_fault(value: object) -> str:
    """Return why a string or path cannot be the value of an option or argument; empty if it can."""
    if value == "":
        return "is empty (is a shell variable not set?)"
    try:
        if isinstance(value, Path):
            value.exists()
    except OSError as error:
        return f"{str(value)[:80]!r} cannot be read: {error.strerror}"
    return ""


class _Flags:
    """Base class of commands with plain help and short error messages.

    The help shows no type for an option without a value (`--yes`, not `--yes <bool>`), and its paragraphs fill the
    width of the terminal, independent of line breaks in the source.
    """

    def __init__(self, *args: Any, help: str | None = None, **more: Any) -> None:
        paragraphs = inspect.cleandoc(help or "").split("\n\n")
        whole = "\n\n".join(" ".join(text.split()) for text in paragraphs)
        super().__init__(*args, help=whole, **more)  # type: ignore[call-arg]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; replace pydantic's error messages by short ones that contain the value."""
        words = [part for arg in args for part in arg.split("=", 1)]  # the parser empties `args`
        try:
            if long := next((arg for arg in args if len(arg) > _MAX_TEXT), ""):
                message = f"{long[:40]!r}… has {len(long):,} characters; expected at most {_MAX_TEXT:,}"
                raise typer.BadParameter(message, ctx=ctx)
            parsed: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
            for param in () if ctx.resilient_parsing else self.params:  # type: ignore[attr-defined]
                value = ctx.params.get(param.name)
                for item in value if isinstance(value, list | tuple) else (value,):
                    if (wrong := _value_fault(item)) and (item != "" or param.default != ""):
                        raise typer.BadParameter(wrong, ctx=ctx, param=param)
        except typer.BadParameter as error:
            error.message = _expected(error, words)
            raise report_usage_error(error) from None
        except TyperException as error:
            # The parser suggests any option instead of an unknown one, because all begin with two dashes: suggest
            # only options with a similar name.
            if near := getattr(error, "possibilities", None):
                unknown = error.option_name.lstrip("-")  # type: ignore[attr-defined]
                nearest = [name for name in near if suggest(unknown, [name.lstrip("-")])]
                error.message += f"; did you mean {' or '.join(nearest)}?" if nearest else ""
                error.possibilities = []  # type: ignore[attr-defined]
            raise report_usage_error(error) from None
        return parsed

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if param.name == "install_completion":
                param.help = "Install completion for the current shell: adds a line to its file, such as ~/.bashrc."
            if param.param_type_name == "argument":
                param.metavar = param.metavar or param.name.upper()
            if getattr(param, "is_flag", False):
                param.metavar = ""
            elif not param.type_descriptor.is_choice:
                label = _shown_type(param.display_type(ctx), ctx)
                if label == "<text>":
                    # Show the option's name as its value: `--broker BROKER`. Arguments already show their name.
                    if param.param_type_name == "option" and param.metavar is None:
                        param.metavar = max(param.opts, key=len).removeprefix("--").upper()
                    label = ""
                param.display_type = partial(_shown_type, label)
        return params


class _Command(_Flags, TyperCommand):
    pass


class _Group(_Flags, TyperGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that `args` name. The error for an unknown command lists similar commands, or all."""
        try:
            return super().resolve_command(ctx, args)
        except TyperException as error:
            unknown, _, near = error.message.partition(". Did you mean ")
            hint = f"did you mean {near}" if near else f"commands: {', '.join(self.list_commands(ctx))}"
            error.message = f"{unknown.rstrip('.')}; {hint}"
            raise report_usage_error(error) from None


def _use_plain_help(app: typer.Typer) -> None:
    """Give all commands and groups of an app the help format of `_Flags`."""
    for command in app.registered_commands:
        command.cls = _Command
    for group in app.registered_groups:
        group.cls = _Group
        if group.typer_instance is not None:
            _use_plain_help(group.typer_instance)


def _add_examples(command: Any, name: str) -> None:
    if examples := examples_of(name):
        # One paragraph per example, because typer prints each paragraph of an epilog as one line.
        command.epilog = "\n\n".join(["Examples:", *examples])
    for inner, part in getattr(command, "commands", {}).items():
        _add_examples(part, f"{name} {inner}")


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Within the `with` block, let imports of these modules fail, except of modules that are already loaded."""
    hidden = dict.fromkeys(name for name in names if name not in sys.modules)
    # Python documents that an import fails if the module's entry in sys.modules is None.
    sys.modules.update(hidden)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


class _Commands(Mapping[str, Any]):
    """Every command by its name. The module of a command is imported when the command is looked up."""

    def __init__(self, wiring: Callable[[], Wiring], modules: Sequence[CommandModule]) -> None:
        self._wiring = wiring
        ordered = sorted(modules, key=lambda item: (_PANELS.index(item.panel), item.last))
        self._modules = {name: item for item in ordered for name in item.names.split()}
        self._loaded: dict[str, Mapping[str, Any]] = {}

    def __getitem__(self, name: str) -> Any:
        source = self._modules[name]
        if source.module not in self._loaded:
            part = typer.Typer()
            # httpx imports its own command line if it is installed. Skip it to start faster.
            with without("httpx._main"):
                register = import_module(f"bundlekeel.{source.module}").register
            register(part, self._wiring) if source.wired else register(part)
            _use_plain_help(part)
            self._loaded[source.module] = typer.main.get_group(part).commands
        command = self._loaded[source.module][name]
        command.rich_help_panel = source.panel
        _add_examples(command, name)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


def make_app(
    wiring: Callable[[], Wiring], commands: Sequence[CommandModule], plugins: Callable[[], list[str]] = list
) -> typer.Typer:
    """Return the typer app with all commands.

    `wiring`: returns the functions that connect to brokers and stores, which the CLI must not import itself.
    `commands`: the commands of the optional features. `plugins`: called before a command runs; loads strategies of
    third parties and returns an error text for each that cannot be loaded.
    """
    modules = (*_OWN, *commands)
    by_name = _Commands(wiring, modules)
    planning = {name for module in modules if module.plans for name in module.names.split()}

    class Group(_Group):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            self.commands = by_name  # type: ignore[assignment]

        def list_commands(self, ctx: Any) -> list[str]:
            return list(self.commands)  # typer's own method would import every module

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
        if problems and context.invoked_subcommand in planning:
            raise typer.Exit(USAGE)

    return app


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"bundlekeel {__version__}")
        raise typer.Exit
