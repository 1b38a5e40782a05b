"""`bundlekeel quota`: groups of tenants and namespaces, the rates that they share, and their usage."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, cast

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from bundlekeel.cli import text_views, units
from bundlekeel.cli.client import path_part
from bundlekeel.cli.exit_codes import USAGE, CliError, as_cli_error, by_option
from bundlekeel.cli.output import TableLayout, decoded, table, typed
from bundlekeel.cli.session import ByOption, ReasonOption, Session, connected, connected_once, login
from bundlekeel.cli.tables import coded
from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.model.text_format import numbered
from bundlekeel.core.quotas.groups import KINDS, QuotaGroup, QuotaLimits, check_group
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.daemon.answers.picture import CodeView
from bundlekeel.daemon.answers.quotas import (
    GroupDetailView,
    GroupView,
    QuotasView,
    QuotaWhyView,
    RatesView,
    ReportedUsageView,
    TopicView,
)
from bundlekeel.settings.quotas import parse_size
from bundlekeel.settings.types import InvalidSetting

quota_app = typer.Typer(
    help="Quota groups: rates that tenants and namespaces share, over all brokers.", no_args_is_help=True
)
NameArgument = Annotated[str, typer.Argument(help="A group's name.")]
MembersOption = Annotated[
    list[str],
    typer.Option("--member", metavar="PATTERN", help="t:TENANT or n:TENANT/NAMESPACE, globs allowed; repeatable."),
]
LimitsOption = Annotated[
    list[str],
    typer.Option(
        "--limit",
        metavar="KIND=RATE",
        help=f"A rate a second, e.g. publish_bytes=10MB; repeatable. Kinds: {', '.join(KINDS)}.",
    ),
]
_HEADS = ("published", "published", "delivered", "delivered")


@connected
def ls(session: Session) -> None:
    """List the groups: limits, usage, and whether the limits are enforced."""
    session.show(lambda client: client.get("quotas"), typed(QuotasView, groups))


@connected
def show(session: Session, name: NameArgument) -> None:
    """Show one group: usage by broker, its busiest topics, their shares and the rates in force."""
    session.show(lambda client: client.get(f"quotas/{path_part(name)}"), typed(GroupDetailView, group))


@connected
def explain(session: Session, name: Annotated[str, typer.Argument(help="A group or a topic.")]) -> None:
    """Explain the rates of a group, or of a topic of one."""
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
    """Create or change a group; it overrides the one of the settings file. Kinds of rate not named have no limit."""
    limits = _limits(limit)
    try:
        check_group(QuotaGroup(name=name, limits=QuotaLimits(**limits), members=tuple(member)))
    except ConfigError as error:
        where, told = f"quotas.groups.{name}", str(as_cli_error(error))
        limits_by = {f"{where}.{kind}": f"--limit {kind}" for kind in KINDS}
        for field, option in ({f"{where}.members": "--member", where: "NAME"} | limits_by).items():
            told = by_option(told, field, option)
        raise CliError(told, USAGE) from None
    body = {"members": member, "reason": reason, "by": by or login()} | limits
    _change(session, "PUT", path_part(name), body)


@connected_once
def rm(session: Session, name: NameArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """Remove a group; its topics get back the rates that they had before."""
    body = {"reason": reason, "by": by or login()}
    _change(session, "DELETE", path_part(name), body)


@connected_once
def reset(session: Session, name: NameArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """Undo `quota set` and `quota rm` for a group of the settings file: the file holds again."""
    body = {"reason": reason, "by": by or login()}
    _change(session, "DELETE", f"{path_part(name)}/override", body)


def _change(session: Session, method: str, path: str, body: Json) -> None:
    """Change a group and show it; a warning where that changes no rate at the brokers, and why."""
    session.tell(session.client.send(method, f"quotas/{path}", body), _changed)
    try:
        now = decoded(QuotasView, session.client.get("quotas"))
    except CliError as error:
        typer.echo(f"warning: the change is stored; whether rates change now is not known: {error}", err=True)
        return
    if now.obstacle is not None:
        why = f"{now.obstacle}: {now.explanations.get(now.obstacle, '')}"
        typer.echo(f"warning: no rate changes at the brokers ({why}); see docs/operations/quotas.md", err=True)


def _changed(answer: Json, layout: TableLayout) -> RenderableType:
    limits = {kind: _form(kind)(rate) for kind, rate in (answer.get("limits") or {}).items() if rate is not None}
    return text_views.pairs(answer | ({"limits": limits} if limits else {}), layout)


def _limits(texts: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        kind, value = _limit(text)
        if kind in found:
            raise CliError(f"--limit {text!r}: {kind} is given twice", USAGE)
        found[kind] = value
    return found


def _limit(text: str) -> tuple[str, float]:
    kind, _, value = text.partition("=")
    if kind not in KINDS:
        raise CliError(f"--limit {text!r}: {kind!r} is not a kind (allowed: {', '.join(KINDS)})", USAGE)
    if not value:
        raise CliError(f"--limit {text!r}: expected a kind and its rate, such as {kind}=1000000", USAGE)
    try:
        found = parse_size(value) if kind.endswith("bytes") else float(value)
    except InvalidSetting as error:
        raise CliError(f"--limit {text!r}: {error} (allowed: {error.allowed})", USAGE) from None
    except ValueError:
        raise CliError(f"--limit {text!r}: not a number", USAGE) from None
    rate = cast("float", found)
    if not math.isfinite(rate):
        raise CliError(f"--limit {text!r}: not a rate (omit a kind that has no limit)", USAGE)
    return kind, rate


def groups(answer: QuotasView, layout: TableLayout) -> RenderableType:
    """The sentence, a line a group and limit, what is wrong."""
    parts: list[RenderableType] = [Text(answer.sentence, style="bold")]
    if answer.groups:
        parts.append(_groups(answer.groups, layout))
    else:
        parts.append(Text("  `bundlekeel quota set` makes one, or `quotas.groups` in the settings", style="dim"))
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
    """A line a group and limit; what is of the whole group is in columns of its own, or below its name."""
    stacked = layout.stacked
    made = table(
        *("group", *([] if stacked else ["members"]), ">limit", ">", ">used", ">of it", ">shares"),
        *([] if stacked else [">topics", ">held back", "set by"]),
    )
    for row in rows:
        members, origin = ", ".join(row.members), row.by or "settings file"
        topics, held = units.count(row.topics), units.count(row.held_back)
        if stacked:
            before, after = ["\n  ".join((row.name, members, f"{topics} topics, {held} held back", origin))], []
        else:
            before, after = [row.name, members], [topics, held, origin]
        for kind, head in zip(KINDS, _HEADS, strict=True):
            form, limit = _form(kind), _of(row.limits, kind)
            if limit is None:
                continue
            used = (form(_of(row.usage, kind)), units.share(_of(row.used_ratio, kind)))
            made.add_row(*before, form(limit), head, *used, form(_of(row.shares, kind)), *after)
            before, after = [""] * len(before), [""] * len(after)
    return made


def group(answer: GroupDetailView, layout: TableLayout) -> RenderableType:
    """The group, its brokers, then its topics by what they pass."""
    parts: list[RenderableType] = [_groups([answer], layout), *(_defect(answer, item) for item in answer.defects)]
    parts += [Text(f"  was, or is to be, written: {item}") for item in answer.planned]
    kinds = [(kind, head) for kind, head in zip(KINDS, _HEADS, strict=True) if _of(answer.limits, kind) is not None]
    if answer.brokers:
        made = table("broker", *(f">{head}" for _, head in kinds))
        for broker, rates in sorted(answer.brokers.items()):
            made.add_row(broker, *(_form(kind)(_of(rates, kind)) for kind, _ in kinds))
        parts.append(made)
    if answer.rows:
        parts += _topics(answer.rows, kinds, layout)
    if answer.reported:
        parts.append(_reported(answer.reported))
    return Group(*parts)


def _topics(rows: Sequence[TopicView], kinds: Sequence[tuple[str, str]], layout: TableLayout) -> list[RenderableType]:
    """A line a topic and kind of rate; its name, brokers and codes are columns, or lines above its rates."""
    heads, beside = ("kind", ">used", ">wanted", ">share", ">lost", ">in force", "held back"), not layout.stacked
    whole = table("topic", "broker", ">partitions", *heads, "code")
    parts: list[RenderableType] = []
    for row in rows:
        brokers, codes = ", ".join(row.brokers), ", ".join(row.codes)
        before, after = [row.topic, brokers, str(row.partitions)], [codes]
        made = whole if beside else table(*heads)
        for kind, head in kinds:
            figures = (row.usage, row.demand, row.share, row.loss, row.partition_rate)
            cells = [head, *(_form(kind)(_of(item, kind)) for item in figures), "yes" if kind in row.held_back else ""]
            made.add_row(*([*before, *cells, *after] if beside else cells))
            before, after = [""] * 3, [""]
        if not beside:
            notes = [f"  {brokers}; {numbered(row.partitions, 'partition')}", *([f"  {codes}"] if codes else [])]
            parts += [Text("\n".join([row.topic, *notes])), Padding(made, (0, 0, 1, 2))]
    return [whole] if beside else parts


def _reported(rows: Sequence[ReportedUsageView]) -> RenderableType:
    """What brokers report to each other beside what is measured, and the sums."""
    made = table("broker", "kind", ">reported", ">measured", ">ago")
    for row in rows:
        name = f"{row.broker}{'' if row.registered else ' (gone)'}"
        for kind, head in zip(KINDS, _HEADS, strict=True):
            age = row.publish_age_seconds if kind.startswith("publish") else row.dispatch_age_seconds
            form = _form(kind)
            made.add_row(name, head, form(_of(row.reported, kind)), form(_of(row.measured, kind)), units.age(age))
            name = ""
    name = "together"
    for kind, head in zip(KINDS, _HEADS, strict=True):
        reported = sum(_of(row.reported, kind) or 0.0 for row in rows)
        measured = sum(_of(row.measured, kind) or 0.0 for row in rows)
        made.add_row(name, head, _form(kind)(reported), _form(kind)(measured), "")
        name = ""
    return made


def reasons(answer: QuotaWhyView, _: TableLayout) -> RenderableType:
    """A sentence a line, then the codes."""
    parts: list[RenderableType] = [Text(f"{answer.kind} {answer.name}", style="bold")]
    if answer.kind == "topic":
        parts.append(Text(f"  in quota group {answer.group}"))
    parts += [Text(f"  {sentence}") for sentence in answer.sentences]
    parts += [Text("  ").append(coded(item.code)).append(f": {item.explanation}") for item in answer.codes]
    return Group(*parts)


def _defect(row: GroupView, item: CodeView) -> RenderableType:
    said = Text(f"  {row.name}: ").append(coded(item.code))
    return said.append(f": {item.explanation} ({item.detail})")


def _form(kind: str) -> Callable[[float | None], str]:
    return units.throughput if kind.endswith("bytes") else units.rate


def _of(rates: RatesView | None, kind: str) -> float | None:
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
    """Put them into the app."""
    app.add_typer(quota_app, name="quota")
