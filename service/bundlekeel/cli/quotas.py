"""`bundlekeel quota`: groups of tenants and namespaces, what they may pass together, and how they fare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from bundlekeel.cli import text_views, units
from bundlekeel.cli.client import path_part
from bundlekeel.cli.exit_codes import USAGE, CliError
from bundlekeel.cli.output import TableLayout, table
from bundlekeel.cli.session import ByOption, ReasonOption, Session, connected, connected_once, login
from bundlekeel.cli.tables import coded
from bundlekeel.core.quotas.groups import KINDS
from bundlekeel.settings.quotas import parse_size
from bundlekeel.settings.types import InvalidSetting

Row = Mapping[str, Any]

quota_app = typer.Typer(
    help="Quota groups: what tenants and namespaces may pass together, over all brokers.", no_args_is_help=True
)
NameArgument = Annotated[str, typer.Argument(help="A group's name.", show_default=False)]
MembersOption = Annotated[
    list[str],
    typer.Option("--member", help="t:TENANT or n:TENANT/NAMESPACE, globs allowed; give it once each."),
]
LimitsOption = Annotated[
    list[str],
    typer.Option("--limit", metavar="KIND=RATE", help=f"A second, e.g. publish_bytes=10MB. Kinds: {', '.join(KINDS)}."),
]
_HEADS = ("published", "published", "delivered", "delivered")


@connected
def ls(session: Session) -> None:
    """All groups: what they pass of what they may, and how enforcing them goes."""
    session.show(lambda client: client.get("quotas"), groups)


@connected
def show(session: Session, name: NameArgument) -> None:
    """One group: usage by broker, its busiest topics, their shares and what is in force."""
    session.show(lambda client: client.get(f"quotas/{path_part(name)}"), group)


@connected
def explain(
    session: Session, name: Annotated[str, typer.Argument(help="A group or a topic.", show_default=False)]
) -> None:
    """Why a group, or a topic of one, passes what it passes."""
    session.show(lambda client: client.get(f"quotas/{path_part(name)}/why"), reasons)


@connected_once
def set_(
    session: Session,
    name: NameArgument,
    member: MembersOption,
    limit: LimitsOption,
    reason: ReasonOption,
    by: ByOption = "",
) -> None:
    """Set a group, a new one or over the one of the settings file. What is not named is not limited."""
    body = {"members": member, "reason": reason, "by": by or login()} | _limits(limit)
    session.tell(session.client.send("PUT", f"quotas/{path_part(name)}", body), text_views.pairs)


@connected_once
def rm(session: Session, name: NameArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """Take a group out of force; its topics get back what was there before."""
    body = {"reason": reason, "by": by or login()}
    session.tell(session.client.send("DELETE", f"quotas/{path_part(name)}", body), text_views.pairs)


@connected_once
def reset(session: Session, name: NameArgument, reason: ReasonOption, by: ByOption = "") -> None:
    """Drop what was set or removed over a group of the settings file: what the file says holds again."""
    body = {"reason": reason, "by": by or login()}
    session.tell(session.client.send("DELETE", f"quotas/{path_part(name)}/override", body), text_views.pairs)


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
        raise CliError(f"--limit {text!r}: {kind!r} is no kind (allowed: {', '.join(KINDS)})", USAGE)
    try:
        found = parse_size(value) if kind.endswith("bytes") else float(value)
    except InvalidSetting as error:
        raise CliError(f"--limit {text!r}: {error} (allowed: {error.allowed})", USAGE) from None
    except ValueError:
        raise CliError(f"--limit {text!r}: not a number", USAGE) from None
    rate = cast("float", found)
    if not math.isfinite(rate):
        raise CliError(f"--limit {text!r}: not a rate (leave a kind out that has no limit)", USAGE)
    return kind, rate


def groups(answer: Row, layout: TableLayout) -> RenderableType:
    """The sentence, a line a group and limit, what is wrong."""
    parts: list[RenderableType] = [Text(str(answer.get("sentence")), style="bold")]
    rows = answer.get("groups") or []
    if rows:
        parts.append(_groups(rows, layout))
    parts += [_defect(row, item) for row in rows for item in row.get("defects") or []]
    parts += [Text(f"  {problem}", style="red") for problem in answer.get("problems") or []]
    for code, count in (answer.get("left") or {}).items():
        parts.append(Text(f"  {count} rates are left: ").append(coded(code)))
    transport = answer.get("transport") or {}
    if transport.get("state") not in ("off", "ok", None):
        detail = f" ({transport['detail']})" if transport.get("detail") else ""
        parts.append(Text(f"  what brokers tell each other is not heard: {transport['state']}{detail}"))
    return Group(*parts)


def _groups(rows: Sequence[Row], layout: TableLayout) -> RenderableType:
    """A line a group and limit; members and where it was set are columns, or below the name."""
    beside = ("", "") if layout.stacked else ("members", "set by")
    made = table(
        *("group", *filter(None, beside[:1]), ">limit", ">", ">used", ">of it", ">shares", ">topics", ">held back"),
        *filter(None, beside[1:]),
    )
    for row in rows:
        _group_lines(made, row, layout)
    return made


def _group_lines(made: Any, row: Row, layout: TableLayout) -> None:
    first = True
    members, origin = ", ".join(row.get("members") or ()), row.get("by") or "settings file"
    for kind, head in zip(KINDS, _HEADS, strict=True):
        limit = (row.get("limits") or {}).get(kind)
        if limit is None:
            continue
        form = _form(kind)
        name = f"{row.get('name')}\n  {members}\n  {origin}" if layout.stacked else str(row.get("name"))
        made.add_row(
            name if first else "",
            *([] if layout.stacked else [members if first else ""]),
            form(limit),
            head,
            form(_of(row, "usage", kind)),
            units.share(_of(row, "used_ratio", kind)),
            form(_of(row, "shares", kind)),
            _count(row.get("topics")) if first else "",
            _count(row.get("held_back")) if first else "",
            *([] if layout.stacked else [origin if first else ""]),
        )
        first = False


def group(answer: Row, layout: TableLayout) -> RenderableType:
    """The group, its brokers, then its topics by what they pass."""
    parts: list[RenderableType] = [
        _groups([answer], layout),
        *(_defect(answer, item) for item in answer.get("defects") or []),
    ]
    parts += [Text(f"  was, or is to be, written: {item}") for item in answer.get("planned") or []]
    kinds = [kind for kind in KINDS if (answer.get("limits") or {}).get(kind) is not None]
    if answer.get("brokers"):
        parts.append(_by_broker(answer["brokers"], kinds))
    rows: Sequence[Row] = answer.get("rows") or []
    if rows:
        made = table(
            "topic",
            "broker",
            ">partitions",
            "kind",
            ">used",
            ">wanted",
            ">share",
            ">lost",
            ">in force",
            "held back",
            "code",
        )
        for row in rows:
            for index, kind in enumerate(kinds):
                form, first = _form(kind), index == 0
                made.add_row(
                    str(row.get("topic")) if first else "",
                    ", ".join(row.get("brokers") or ()) if first else "",
                    _count(row.get("partitions")) if first else "",
                    _HEADS[KINDS.index(kind)],
                    *(form(_of(row, name, kind)) for name in ("usage", "demand", "share", "loss", "partition_rate")),
                    "yes" if kind in (row.get("held_back") or ()) else "",
                    ", ".join(row.get("codes") or ()) if first else "",
                )
        parts.append(made)
    if answer.get("told"):
        parts.append(_told(answer["told"]))
    return Group(*parts)


def _told(rows: Sequence[Row]) -> RenderableType:
    """What brokers tell each other beside what is measured, and all of it together."""
    made = table("broker", "kind", ">told", ">measured", ">ago")
    for row in rows:
        for index, (kind, head) in enumerate(zip(KINDS, _HEADS, strict=True)):
            form, age = _form(kind), row.get(f"{kind.partition('_')[0]}_age_seconds")
            made.add_row(
                f"{row.get('broker')}{'' if row.get('registered') else ' (gone)'}" if index == 0 else "",
                head,
                form(_of(row, "told", kind)),
                form(_of(row, "measured", kind)),
                units.age(age),
            )
    for index, (kind, head) in enumerate(zip(KINDS, _HEADS, strict=True)):
        told, measured = (sum(_of(row, name, kind) or 0.0 for row in rows) for name in ("told", "measured"))
        made.add_row("together" if index == 0 else "", head, _form(kind)(told), _form(kind)(measured), "")
    return made


def _by_broker(brokers: Mapping[str, Row], kinds: Sequence[str]) -> RenderableType:
    """A line a broker, what its topics of the group pass of what is limited."""
    made = table("broker", *(f">{_HEADS[KINDS.index(kind)]}" for kind in kinds))
    for broker, rates in sorted(brokers.items()):
        made.add_row(broker, *(_form(kind)(rates.get(kind)) for kind in kinds))
    return made


def reasons(answer: Row, _: TableLayout) -> RenderableType:
    """A sentence a line, then the codes."""
    parts: list[RenderableType] = [Text(f"{answer.get('kind')} {answer.get('name')}", style="bold")]
    if answer.get("kind") == "topic":
        parts.append(Text(f"  in quota group {answer.get('group')}"))
    parts += [Text(f"  {sentence}") for sentence in answer.get("sentences") or []]
    for item in answer.get("codes") or []:
        parts.append(Text("  ").append(coded(item.get("code"))).append(f": {item.get('explanation')}"))
    return Group(*parts)


def _defect(row: Row, item: Row) -> RenderableType:
    said = Text(f"  {row.get('name')}: ").append(coded(item.get("code")))
    return said.append(f": {item.get('explanation')} ({item.get('detail')})")


def _form(kind: str) -> Any:
    return units.throughput if kind.endswith("bytes") else units.rate


def _of(row: Row, name: str, kind: str) -> Any:
    return (row.get(name) or {}).get(kind)


def _count(value: Any) -> str:
    return str(value) if isinstance(value, int) else units.DASH


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
