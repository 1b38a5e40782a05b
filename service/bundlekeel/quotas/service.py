"""Queries and changes of quota groups for the API and the CLI. Every replica returns the same response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from bundlekeel.leader.gate.in_force import mode_in_force
from bundlekeel.leader.state.documents import Desired, request_record
from bundlekeel.leader.state.leadership import Leadership
from bundlekeel.leader.state.takeover_record import SETS_RATES_AGAIN
from bundlekeel.model.calls import reads
from bundlekeel.model.codes import Code, explain
from bundlekeel.model.errors import NotFound, StoreError
from bundlekeel.model.names import SCALABLE_DOMAINS
from bundlekeel.model.response_fields import Json
from bundlekeel.model.text_format import numbered
from bundlekeel.ports import Peers
from bundlekeel.pulsar.formats import external_input
from bundlekeel.quotas.cycle import QuotaParts, Quotas
from bundlekeel.quotas.report import topic_row
from bundlekeel.quotas.requests import QuotaRequest, QuotaRequests, requests_of
from bundlekeel.quotas.responses import (
    GroupDetailView,
    GroupRemoved,
    GroupSetView,
    GroupView,
    QuotasView,
    QuotaWhyView,
    RatesView,
    TopicView,
    TransportView,
    WritesView,
)
from bundlekeel.quotas.rules.groups import QuotaGroup, check_group, check_groups, check_least, resolve
from bundlekeel.quotas.rules.usage import topic_of
from bundlekeel.quotas.stored_groups import API, SETTINGS, DeclaredGroups, removed_by
from bundlekeel.views.picture import CodeView

Row = TypeVar("Row", GroupView, GroupDetailView)
_WORDS: Final = {
    "publish_messages": "messages/s published",
    "publish_bytes": "bytes/s published",
    "dispatch_messages": "messages/s delivered",
    "dispatch_bytes": "bytes/s delivered",
}


class QuotaService:
    """Returns the leader's last report on quota groups, and stores operators' requests for them.

    `leadership`, `peers`: used by a follower to query the leader about topics that the stored report omits.
    """

    def __init__(self, quotas: Quotas, parts: QuotaParts, leadership: Leadership, peers: Peers) -> None:
        self.quotas = quotas
        self._p = parts
        self._leadership, self._peers = leadership, peers

    # --- queries ---

    @reads
    async def view(self) -> QuotasView:
        """Return all groups, and whether and how their limits are enforced."""
        report = await self._report()
        declared = self._declared()
        rows = {row["name"]: row for row in report.get("groups", ())}
        enforcer, left = self._p.settings.enforcer, report.get("left", {})
        obstacle = report.get("obstacle") or (Code.QUOTAS_OFF.value if enforcer == "off" else None)
        explanations = {code: text for code in (obstacle or "", *left) if (text := explain(code))}
        takeover = self._p.shared_state.takeover
        if obstacle == Code.PUT_ASIDE and takeover is not None and takeover.ended is not None:
            by = takeover.ended.by
            explanations[obstacle] = f"handed back by {by}; no rate is set before the next {SETS_RATES_AGAIN}"
        view = QuotasView(
            enforcer=enforcer,
            mode=mode_in_force(self._p.ceiling, self._p.shared_state.desired),
            acting=report.get("acting", False),
            obstacle=obstacle,
            sentence="",
            wall_ms=report.get("wall_ms"),
            cycle_seconds=self.quotas.cycle_seconds,
            problems=list(dict.fromkeys([*map(str, declared.problems), *report.get("problems", ())])),
            writes=external_input.convert(report.get("writes") or {}, WritesView),
            left=left,
            explanations=explanations,
            transport=external_input.convert(report.get("transport") or {}, TransportView),
            groups=[self._row(group, declared, rows.get(group.name), GroupView) for group in declared.groups],
        )
        return replace(view, sentence=sentence_of(view))

    @reads
    async def group(self, name: str) -> GroupDetailView:
        """Return one group with its busiest topics. Raises NotFound if there is no such group."""
        report, declared = await self._report(), self._declared()
        group = next((item for item in declared.groups if item.name == name), None)
        if group is None:
            raise _unknown(name, declared)
        reported = next((row for row in report.get("groups", ()) if row["name"] == name), None)
        return self._row(group, declared, reported, GroupDetailView)

    @reads
    async def why(self, name: str, *, here: bool = False) -> QuotaWhyView:
        """Explain the limits of a group or topic and its current throughput. `here`: do not query the leader."""
        if "/" not in name:
            row = await self.group(name)
            codes = [item.code for item in row.defects]
            sentences = [*_group_text(row), *(item.detail for item in row.defects)]
            sentences += [f"was, or is to be, written: {item}" for item in row.planned]
            return _answer(name, "group", name, sentences, codes)
        if name.partition("://")[0] in SCALABLE_DOMAINS:
            raise NotFound(f"quota groups do not limit scalable topics such as {name}")
        topic = topic_of(name if "://" in name else f"persistent://{name}")
        answer = None if here else await self._by_leader(topic)
        return answer or await self._why_topic(topic)

    async def _why_topic(self, topic: str) -> QuotaWhyView:
        cycle_report, live = self.quotas.seen, self._p.shared_state.leading
        if live and cycle_report is not None:
            row_of_topic = topic_row(cycle_report, topic, self.quotas.rates.rate_of)
            if row_of_topic is not None:
                return topic_why(topic, *row_of_topic)
            raise NotFound(f"no broker reported {topic} in a group; {_names(self._declared())}")
        for group in (await self._report()).get("groups", ()):
            for row in group["rows"]:
                if row["topic"] == topic:
                    return topic_why(topic, group["name"], row)
        raise NotFound(
            f"no group is known to limit {topic}, or it is not among the busiest of its group (the leader, which knows "
            f"all topics, did not answer); {_names(self._declared())}"
        )

    async def _by_leader(self, topic: str) -> QuotaWhyView | None:
        """Return the leader's explanation of a topic.

        None: this sidecar leads, or the leader does not respond or does not know the topic.
        """
        leader = self._leadership.other_leader
        if leader is None:
            return None
        try:
            response = await self._peers.get(leader.url, f"quotas/{quote(topic, safe='')}/why")
            return None if response is None else external_input.convert(response, QuotaWhyView)
        except (StoreError, msgspec.ValidationError):
            return None

    async def _report(self) -> Json:
        if self._p.shared_state.leading and self.quotas.report is not None:
            return self.quotas.report
        return await self.quotas.book.read_report() or {}

    def _declared(self) -> DeclaredGroups:
        return self.quotas.register.now(requests_of(self._p.shared_state.desired))

    def _row(self, group: QuotaGroup, declared: DeclaredGroups, reported: Json | None, kind: type[Row]) -> Row:
        request = (declared.requests or {}).get(group.name)
        row = (reported or {}) | {
            "name": group.name,
            "origin": (declared.origins or {}).get(group.name, SETTINGS),
            "by": request.by if request is not None else "",
            "reason": request.reason if request is not None else "",
            "since_ms": request.since_ms if request is not None else 0,
            "members": list(group.members),
            "limits": asdict(_limits(group)),
        }
        try:
            return external_input.convert(row, kind)
        except msgspec.ValidationError:
            if reported is None:
                raise
            # The stored report has another form. Return only the declared limits, which do not depend on it.
            return self._row(group, declared, None, kind)

    # --- changing ---

    async def put(self, group: QuotaGroup, *, reason: str, by: str) -> GroupSetView:
        """Create or change a group. Raises ConfigError if a value is invalid or another group has the same member."""
        check_least(check_group(group), self._p.settings.least())
        tenants, namespaces = await self._p.metadata.tenants(), await self._p.metadata.namespaces()
        limits = _limits(group)
        record = QuotaRequest(by=by, reason=reason, since_ms=self._p.clock.wall_ms(), members=group.members)
        request = msgspec.structs.replace(record, **asdict(limits))

        def change(requests: QuotaRequests) -> QuotaRequests:
            others = self.quotas.register.with_requests({n: w for n, w in requests.items() if n != group.name})
            rest = [item for item in others.groups if item.name != group.name]
            check_groups([*rest, group])
            membership = resolve([*rest, group], tenants, namespaces)
            mine = f"quotas.groups.{group.name}."
            for problem in membership.problems:
                if problem.field.startswith(mine):
                    raise problem
            return {**requests, group.name: request}

        await self._change(change, group.name, f"quota group {group.name}", reason, by)
        self.quotas.usage.names_changed()
        return GroupSetView(name=group.name, origin=API, members=list(group.members), limits=limits)

    async def remove(self, name: str, *, reason: str, by: str) -> GroupRemoved:
        """Remove a group, so that its limits do not apply any more. Raises NotFound if there is no such group."""
        declared = self._declared()
        if name not in {group.name for group in declared.groups}:
            raise _unknown(name, declared)
        from_settings = name in self._p.settings.groups
        removal = QuotaRequest(by=by, reason=reason, since_ms=self._p.clock.wall_ms(), removed=True)

        def change(requests: QuotaRequests) -> QuotaRequests:
            left = {other: request for other, request in requests.items() if other != name}
            return left | ({name: removal} if from_settings else {})

        await self._change(change, name, f"removal of quota group {name}", reason, by)
        return GroupRemoved(name=name, origin=(declared.origins or {}).get(name, SETTINGS))

    async def reset(self, name: str, *, reason: str, by: str) -> GroupSetView:
        """Undo what operators changed in a quota group, so that the settings file applies again.

        Raises NotFound if no operator changed or removed the group, or if it exists only by an operator's request.
        """
        register = self.quotas.register
        from_settings = name in self._p.settings.groups

        def change(requests: QuotaRequests) -> QuotaRequests:
            request = requests.get(name)
            if request is None:
                raise NotFound(f"no command has set or removed quota group {name!r}; {_names(self._declared())}")
            if not from_settings and not request.removed:
                raise NotFound(
                    f"the settings file has no quota group {name!r}; `bundlekeel quota rm {name}` removes it"
                )
            left = {other: item for other, item in requests.items() if other != name}
            before = set(map(str, register.with_requests(requests).problems))
            for problem in register.with_requests(left).problems:
                if str(problem) not in before:
                    raise problem
            return left

        await self._change(change, name, f"quota group {name} as in the settings file", reason, by)
        self.quotas.usage.names_changed()
        group = next((item for item in register.settings if item.name == name), None)
        members, limits = ([], None) if group is None else (list(group.members), _limits(group))
        return GroupSetView(name=name, origin=SETTINGS, members=members, limits=limits)

    async def _change(
        self, change: Callable[[QuotaRequests], QuotaRequests], name: str, what: str, reason: str, by: str
    ) -> None:
        states: list[Json | None] = []

        def changed(desired: Desired) -> Desired:
            requests = change(requests_of(desired))
            states[:] = [
                _in_force(name, self.quotas.register.with_requests(item)) for item in (requests_of(desired), requests)
            ]
            return msgspec.structs.replace(desired, quotas=requests)

        await self._p.shared_state.change_desired(changed)
        record = request_record(what, reason=reason, by=by, wall_ms=self._p.clock.wall_ms())
        self._p.journal.append(record | {"group": name, "before": states[0], "after": states[1]})


def _limits(group: QuotaGroup) -> RatesView:
    return RatesView(**asdict(group.limits))


def _in_force(name: str, declared: DeclaredGroups) -> Json | None:
    """Return a group in `declared` as JSON for the journal; None: there is no such group."""
    group = next((item for item in declared.groups if item.name == name), None)
    if group is None:
        return None
    return {"origin": (declared.origins or {})[name], "members": list(group.members), "limits": asdict(_limits(group))}


def _unknown(name: str, declared: DeclaredGroups) -> NotFound:
    removal = (declared.removed or {}).get(name)
    if removal is not None:
        way = f"`bundlekeel quota reset {name}` puts it in force again"
        return NotFound(f"quota group {name!r} of the settings file was {removed_by(removal)}; {way}")
    return NotFound(f"no quota group {name!r}; {_names(declared)}")


def _names(declared: DeclaredGroups) -> str:
    names = ", ".join(group.name for group in declared.groups)
    return f"groups: {names}" if names else "there are no groups"


def sentence_of(view: QuotasView) -> str:
    """Return the state of all groups as one sentence, which contains the reason if no rates are written."""
    groups, writes = view.groups, view.writes
    if not groups:
        owned = writes.held
        return "there are no quota groups" + (f"; {owned} rates are still to be given back" if owned else "")
    if view.wall_ms is None:
        return f"{_many(groups)}; the leader has not measured any yet"
    tight = [row for row in groups if row.held_back]
    sentence = f"{_many(groups)}, topics are held back in {len(tight)}"
    if view.obstacle is not None:
        why = f"{view.obstacle}: {view.explanations.get(view.obstacle, '')}"
        return f"{sentence}; nothing is written ({why}); {numbered(writes.planned, 'change')} would be"
    written = (
        f"{writes.written} of {numbered(writes.planned, 'change')} written" if writes.planned else "nothing to write"
    )
    sentence += f"; {written}, {numbered(writes.held, 'rate')} in force"
    later = sum(view.left.get(code.value, 0) for code in (Code.BUDGET_OF_RATES, Code.RATE_NOT_REACHED))
    return f"{sentence}, {later} still to come" if later else sentence


def _many(groups: list[GroupView]) -> str:
    return numbered(len(groups), "quota group")


def _group_text(row: GroupView) -> list[str]:
    if row.usage is None:
        return ["the leader has not measured this group yet"]
    sentences = []
    for kind, words in _WORDS.items():
        limit = getattr(row.limits, kind)
        if limit is not None:
            used = getattr(row.usage, kind)
            sentences.append(
                f"{used:,.0f} of {limit:,.0f} {words} ({used / limit:.0%}); shares add up to "
                f"{getattr(row.shares, kind) or 0:,.0f}"
            )
            lost = getattr(row.skew_loss, kind)
            if lost:
                sentences.append(f"{lost:,.0f} {words} cannot be used, because the demand is in too few partitions")
    topics, namespaces = numbered(row.topics or 0, "topic"), numbered(row.namespaces or 0, "namespace")
    sentences.append(f"{topics} of {namespaces}, {row.held_back} held back")
    return sentences


def _topic_text(row: TopicView) -> list[str]:
    sentences = []
    for kind, words in _WORDS.items():
        share, rate = getattr(row.share, kind), getattr(row.partition_rate, kind)
        if share is None and rate is None:
            continue
        parts = f" in {row.partitions} partitions" if row.partitions > 1 else ""
        text = f"{getattr(row.usage, kind):,.0f} {words}{parts}"
        text += f", share {share:,.0f}" if share is not None else ", no share: not limited"
        text += f", each partition may pass {rate:,.0f} now" if rate is not None else ", nothing is in force"
        sentences.append(f"{text}{', held back' if kind in row.held_back else ''}")
    for side, rate in row.change.items():
        values = "taken away" if rate is None else f"{rate.messages} messages/s, {rate.bytes} bytes/s"
        sentences.append(f"the {side} rate was, or would be, changed: {values} (-1: no limit)")
    sentences.append(f"served by {', '.join(row.brokers) or 'no broker now'}")
    return sentences


def topic_why(topic: str, group: str, row: Json) -> QuotaWhyView:
    """Explain the limits and the current throughput of a group's topic. `row`: the topic's row in the report."""
    view = external_input.convert(row, TopicView)
    return _answer(topic, "topic", group, _topic_text(view), view.codes)


def _answer(name: str, kind: str, group: str, sentences: list[str], codes: list[str]) -> QuotaWhyView:
    explained = [CodeView(code=code, explanation=explain(code)) for code in codes]
    return QuotaWhyView(name=name, kind=kind, group=group, sentences=sentences, codes=explained)
