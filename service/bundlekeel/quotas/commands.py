"""`bundlekeel quota`: groups of tenants and namespaces, their shared rates, and their usage."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Generic, TypeVar, cast

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from bundlekeel.cli import text_views, units
from bundlekeel.cli.client import path_part
from bundlekeel.cli.exit_codes import USAGE, CliError, as_cli_error, by_option
from bundlekeel.cli.output import Column, TableLayout, decoded, listing, table, typed
from bundlekeel.cli.session import ByOption, ReasonOption, Session, connected, connected_once, login
from bundlekeel.cli.tables import coded
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.response_fields import Json
from bundlekeel.model.text_format import numbered
from bundlekeel.quotas.responses import (
    GroupDetailView,
    GroupView,
    QuotasView,
    QuotaWhyView,
    RatesView,
    ReportedUsageView,
    TopicView,
)
from bundlekeel.quotas.rules.groups import KINDS, QuotaGroup, QuotaLimits, check_group
from bundlekeel.quotas.settings import parse_size
from bundlekeel.settings.types import InvalidSetting
from bundlekeel.views.picture import CodeView

quota_app = typer.Typer(
    help="Manage quota groups: rates that tenants and namespaces share over all brokers.", no_args_is_help=True
)
NameArgument = Annotated[str, typer.Argument(help="Name of the group.")]
MembersOption = Annotated[
    list[str],
    typer.Option(
        "--member", metavar="PATTERN", help="Member: t:TENANT or n:TENANT/NAMESPACE, globs allowed; repeatable."
    ),
]
LimitsOption = Annotated[
    list[str],
    typer.Option(
        "--limit",
        metavar="KIND=RATE",
        help=f"Rate per second, e.g. publish_bytes=10MB; repeatable. Kinds: {', '.join(KINDS)}.",
    ),
]
R = TypeVar("R")
_HEADS = ("published", "published", "delivered", "delivered")


@connected
def ls(session: Session) -> None:
    """List the groups: limits, usage, and whether the limits are enforced."""
    session.show(lambda client: client.get("quotas"), typed(QuotasView, groups))


@connected
def show(session: Session, name: NameArgument) -> None:
    """Show one group: usage by broker, the busiest topics, their shares and their current rates."""
    session.show(lambda client: client.get(f"quotas/{path_part(name)}"), typed(GroupDetailView, group))


@connected
def explain(session: Session, name: Annotated[str, typer.Argument(help="Group or topic.")]) -> None:
    """Explain the rates of a group, or of a topic in a group."""
    session.show(lambda client: client.get(f"quotas/{path_part(name)}/why"), typed(QuotaWhyView, reasons))


@connected_once
def set_(
    session: Session,
    name: NameArgument,
    member: MembersOption,
    limit: LimitsOption,
    reason: ReasonOption,
    by: ByOption = "",
) -> None:
    """Create or change a group; it overrides the group in the settings file. Kinds without a rate have no limit."""
    limits = _limits(limit)
    try:
        check_group(QuotaGroup(name=name, limits=QuotaLimits(**limits), members=tuple(member)))
    except ConfigError as error:
        path, message = f"quotas.groups.{name}", str(as_cli_error(error))
        limits_by = {f"{path}.{kind}": f"--limit {kind}" for kind in KINDS}
        for field, option in ({f"{path}.members": "--member", path: "NAME"} | limits_by).items():
            message = by_option(message, field, option)
        raise CliError(message, USAGE) from None
    body = {"members": member, "reason": reason, "by": by or login()} | limits
    _change(session, "PUT", path_part(name), body)


@connected_once
def rm(session: Session, name: NameArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """Remove a group; the earlier rates of its topics are restored."""
    body = {"reason": reason, "by": by or login()}
    _change(session, "DELETE", path_part(name), body)


@connected_once
def reset(session: Session, name: NameArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """Undo `quota set` and `quota rm` for a group of the settings file, which applies again."""
    body = {"reason": reason, "by": by or login()}
    _change(session, "DELETE", f"{path_part(name)}/override", body)


def _change(session: Session, method: str, path: str, body: Json) -> None:
    """Send a change of a quota group and print the response. Prints a warning if Bundlekeel writes no rates now."""
    session.tell(session.client.send(method, f"quotas/{path}", body), _changed)
    try:
        now = decoded(QuotasView, session.client.get("quotas"))
    except CliError as error:
        typer.echo(
            f"warning: the change is stored, but Bundlekeel could not check that the brokers apply it: {error}",
            err=True,
        )
        return
    if now.obstacle is not None:
        why = f"{now.obstacle}: {now.explanations.get(now.obstacle, '')}"
        typer.echo(f"warning: the brokers' rate limits do not change ({why}); see docs/operations/quotas.md", err=True)


def _changed(answer: Json, layout: TableLayout) -> RenderableType:
    limits = {kind: _form(kind)(rate) for kind, rate in (answer.get("limits") or {}).items() if rate is not None}
    return text_views.pairs(answer | ({"limits": limits} if limits else {}), layout)


def _limits(texts: Sequence[str]) -> dict[str, float]:
    limits: dict[str, float] = {}
    for text in texts:
        kind, value = _limit(text)
        if kind in limits:
            raise CliError(f"--limit {text!r}: {kind} has two rates", USAGE)
        limits[kind] = value
    return limits


def _limit(text: str) -> tuple[str, float]:
    kind, _, value = text.partition("=")
    if kind not in KINDS:
        raise CliError(f"--limit {text!r}: {kind!r} is not a kind (allowed: {', '.join(KINDS)})", USAGE)
    if not value:
        raise CliError(f"--limit {text!r}: expected a kind and its rate, such as {kind}=1000000", USAGE)
    try:
        number = parse_size(value) if kind.endswith("bytes") else float(value)
    except InvalidSetting as error:
        raise CliError(f"--limit {text!r}: {error} (allowed: {error.allowed})", USAGE) from None
    except ValueError:
        raise CliError(f"--limit {text!r}: not a number", USAGE) from None
    rate = cast("float", number)
    if not math.isfinite(rate):
        raise CliError(f"--limit {text!r}: not a rate (omit a kind that has no limit)", USAGE)
    return kind, rate


def groups(answer: QuotasView, layout: TableLayout) -> RenderableType:
    """Render the state of all groups as one sentence, one line per group and limit, then the groups' problems."""
    parts: list[RenderableType] = [Text(answer.sentence, style="bold")]
    if answer.groups:
        parts.append(_groups(answer.groups, layout))
    else:
        parts.append(
            Text("  create one with `bundlekeel quota set`, or with `quotas.groups` in the settings", style="dim")
        )
    parts += [_defect(row, item) for row in answer.groups for item in row.defects]
    parts += [Text(f"  {problem}", style="red") for problem in answer.problems]
    for code, count in answer.left.items():
        parts.append(Text(f"  {count} rates are not written: ").append(coded(code)))
    transport = answer.transport
    if transport.state not in ("off", "ok"):
        detail = f" ({transport.detail})" if transport.detail else ""
        parts.append(Text(f"  the usage that brokers report to each other is not read: {transport.state}{detail}"))
    return Group(*parts)


def _groups(rows: Sequence[GroupView], layout: TableLayout) -> RenderableType:
    """Render one line per group and limit. In a narrow table, values of the whole group are below its name."""
    below = 0 if layout.stacked else None
    lines = [
        _Line(row, kind, head, first=number == 0) for row in rows for number, (kind, head) in enumerate(_limited(row))
    ]
    columns: list[Column[_Line[GroupView]]] = [
        _first("group", lambda row: row.name),
        _first("members", lambda row: ", ".join(row.members), below),
        Column(">limit", lambda line: line.rate(line.row.limits)),
        Column(">", lambda line: line.head),
        Column(">used", lambda line: line.rate(line.row.usage)),
        Column(">of it", lambda line: units.share(_rate_of(line.row.used_ratio, line.kind))),
        Column(">shares", lambda line: line.rate(line.row.shares)),
        _first(">topics", lambda row: units.count(row.topics), below, "\n  {} topics"),
        _first(">held back", lambda row: units.count(row.held_back), below, ", {} held back"),
        _first("set by", lambda row: row.by or "settings file", below),
    ]
    return listing(lines, columns)


@dataclass(frozen=True, slots=True)
class _Line(Generic[R]):
    """A line of a table: one kind of rate of a group or topic (`row`). `first`: whether it is the row's first line."""

    row: R
    kind: str
    head: str
    first: bool

    def rate(self, rates: RatesView | None) -> str:
        """Return the rate of this line's kind, as text."""
        return _form(self.kind)(_rate_of(rates, self.kind))


def _first(
    header: str, cell: Callable[[R], str], under: int | None = None, pattern: str = "\n  {}", *, shown: bool = True
) -> Column[_Line[R]]:
    """Return a table column for a value of a whole group or topic. Only the first of its lines shows the value."""
    return Column(header, lambda line: cell(line.row) if line.first else "", under, pattern, shown)


def _limited(row: GroupView) -> list[tuple[str, str]]:
    """Return the kinds of rate that the group limits, each with its name for the table."""
    return [(kind, head) for kind, head in zip(KINDS, _HEADS, strict=True) if _rate_of(row.limits, kind) is not None]


def group(answer: GroupDetailView, layout: TableLayout) -> RenderableType:
    """Render a group, its usage by broker, and its topics, the busiest first."""
    parts: list[RenderableType] = [_groups([answer], layout), *(_defect(answer, item) for item in answer.defects)]
    parts += [Text(f"  written, or to be written: {item}") for item in answer.planned]
    kinds = _limited(answer)
    if answer.brokers:
        drawn = table("broker", *(f">{head}" for _, head in kinds))
        for broker, rates in sorted(answer.brokers.items()):
            drawn.add_row(broker, *(_form(kind)(_rate_of(rates, kind)) for kind, _ in kinds))
        parts.append(drawn)
    if answer.rows:
        parts += _topics(answer.rows, kinds, layout)
    if answer.reported:
        parts.append(_reported(answer.reported))
    return Group(*parts)


def _topics(rows: Sequence[TopicView], kinds: Sequence[tuple[str, str]], layout: TableLayout) -> list[RenderableType]:
    """Render one line per topic and kind of rate. In a narrow table, name, brokers and codes are above the rates."""
    apart = not layout.stacked
    columns: list[Column[_Line[TopicView]]] = [
        _first("topic", lambda row: row.topic, shown=apart),
        _first("broker", lambda row: ", ".join(row.brokers), shown=apart),
        _first(">partitions", lambda row: str(row.partitions), shown=apart),
        Column("kind", lambda line: line.head),
        Column(">used", lambda line: line.rate(line.row.usage)),
        Column(">wanted", lambda line: line.rate(line.row.demand)),
        Column(">share", lambda line: line.rate(line.row.share)),
        Column(">lost", lambda line: line.rate(line.row.loss)),
        Column(">in force", lambda line: line.rate(line.row.partition_rate)),
        Column("held back", lambda line: "yes" if line.kind in line.row.held_back else ""),
        _first("code", lambda row: ", ".join(row.codes), shown=apart),
    ]
    lines = [[_Line(row, kind, head, first=number == 0) for number, (kind, head) in enumerate(kinds)] for row in rows]
    if apart:
        return [listing(chain.from_iterable(lines), columns)]
    parts: list[RenderableType] = []
    for row, own in zip(rows, lines, strict=True):
        notes = [f"  {', '.join(row.brokers)}; {numbered(row.partitions, 'partition')}"]
        notes += [f"  {', '.join(row.codes)}"] if row.codes else []
        parts += [Text("\n".join([row.topic, *notes])), Padding(listing(own, columns), (0, 0, 1, 2))]
    return parts


def _reported(rows: Sequence[ReportedUsageView]) -> RenderableType:
    """Render the usage that each broker reports to other brokers, its measured usage, and the sums of both kinds."""
    drawn = table("broker", "kind", ">reported", ">measured", ">ago")
    for row in rows:
        name = f"{row.broker}{'' if row.registered else ' (gone)'}"
        for kind, head in zip(KINDS, _HEADS, strict=True):
            age = row.publish_age_seconds if kind.startswith("publish") else row.dispatch_age_seconds
            form = _form(kind)
            drawn.add_row(
                name, head, form(_rate_of(row.reported, kind)), form(_rate_of(row.measured, kind)), units.age(age)
            )
            name = ""
    name = "together"
    for kind, head in zip(KINDS, _HEADS, strict=True):
        reported = sum(_rate_of(row.reported, kind) or 0.0 for row in rows)
        measured = sum(_rate_of(row.measured, kind) or 0.0 for row in rows)
        drawn.add_row(name, head, _form(kind)(reported), _form(kind)(measured), "")
        name = ""
    return drawn


def reasons(answer: QuotaWhyView, _: TableLayout) -> RenderableType:
    """Render the reasons for a rate, one sentence per line, then their codes."""
    parts: list[RenderableType] = [Text(f"{answer.kind} {answer.name}", style="bold")]
    if answer.kind == "topic":
        parts.append(Text(f"  in quota group {answer.group}"))
    parts += [Text(f"  {sentence}") for sentence in answer.sentences]
    parts += [Text("  ").append(coded(item.code)).append(f": {item.explanation}") for item in answer.codes]
    return Group(*parts)


def _defect(row: GroupView, item: CodeView) -> RenderableType:
    text = Text(f"  {row.name}: ").append(coded(item.code))
    return text.append(f": {item.explanation} ({item.detail})")


def _form(kind: str) -> Callable[[float | None], str]:
    return units.throughput if kind.endswith("bytes") else units.rate


def _rate_of(rates: RatesView | None, kind: str) -> float | None:
    return None if rates is None else getattr(rates, kind)


for _name, _command in (
    ("ls", ls),
    ("show", show),
    ("explain", explain),
    ("set", set_),
    ("rm", rm),
    ("reset", reset),
):
    quota_app.command(_name)(_command)


def register(app: typer.Typer) -> None:
    """Add the commands `quota ...` to the app."""
    app.add_typer(quota_app, name="quota")
