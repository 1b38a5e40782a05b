"""`doctor`: checks every connection and permission, and explains how to fix each problem.

It changes nothing, in any mode, except that the command writes one document below Bundlekeel's root in the metadata
store, to test the right to write. Every sidecar needs this right, and only sidecars read this subtree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bundlekeel.leader.cycle.external_splits import REMEDY, turned_off
from bundlekeel.leader.gate.gate import ACTED_ON
from bundlekeel.leader.state.partial_takeover import left_to_us, namespaces_of, put_aside
from bundlekeel.leader.state.takeover_record import TAKEOVER, TakeoverRecord, decode_takeover
from bundlekeel.model.averages import Averages
from bundlekeel.model.capacity import CapacityOverride, match_capacity
from bundlekeel.model.check import Check
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import (
    AdminUnauthorized,
    BundlekeelError,
    CodecError,
    SnapshotError,
    StaleWrite,
    StoreError,
    WrongCluster,
)
from bundlekeel.model.load import BANDWIDTH_IN, BANDWIDTH_OUT, CPU, ExcludedBroker
from bundlekeel.model.names import namespace_of
from bundlekeel.model.parameters import BY_PULSAR_KEY, Parameters
from bundlekeel.model.policies import Policies
from bundlekeel.model.snapshot import build_snapshot
from bundlekeel.model.text_format import clock_text, numbered, some
from bundlekeel.model.uris import LOOPBACK, host_and_port
from bundlekeel.planning.filters.javaregex import java_pattern
from bundlekeel.planning.wrong_limits import wrong_limits
from bundlekeel.ports import BrokerAdmin, Clock, Coordination, LoadSource, LoadTables, Metadata, RawClusterView
from bundlekeel.pulsar.channel.channel_watch import ChannelWatch
from bundlekeel.pulsar.counters.counters import LiveLoads
from bundlekeel.pulsar.sources.broker_settings import BrokerConfig, configuration_store
from bundlekeel.pulsar.sources.extensible_brokers import BundlesSetting
from bundlekeel.pulsar.sources.policies import PolicyCache
from bundlekeel.requests.doctor_channel import channel_checks
from bundlekeel.requests.doctor_checks import (
    StateCheck,
    clocks_check,
    document_check,
    double_service_checks,
    jvm_check,
    live_loads_check,
    migration_check,
    segment_checks,
    unmatched_checks,
)
from bundlekeel.requests.takeover import NO_LEADER, SET_PLACEMENT, unknown_namespaces, why_nothing_balances
from bundlekeel.settings.parameters import STOCK

_PATIENCE = 5
# Brokers publish a changed load within this time, in seconds.
_LOADS_SECONDS = 5.0
# Load manager modes in which brokers publish their load on topics, whenever it changes.
_PUBLISHING = ("extensible", "mixed")
# CPU values that differ by at most this share of the CPU limit count as equal, because brokers measure at different
# times.
CPU_ALIKE_SHARE = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorContext:
    """Dependencies of the checks.

    `used`: returns the parameters that follow from a broker's configuration, and the origin of each parameter.
    `hosts`: the Host headers that the API of this host accepts. `records`: see `document_check`.
    """

    coordination: Coordination
    source: LoadSource
    metadata: Metadata
    admin: BrokerAdmin
    config: BrokerConfig
    clock: Clock
    mode: str
    heartbeat_seconds: float
    store_address: str
    capacity: Sequence[CapacityOverride]
    bundles: BundlesSetting
    used: Callable[[Mapping[str, str]], tuple[Parameters, Mapping[str, str]]]
    hosts: Sequence[str]
    channel: ChannelWatch | None = None
    feed: Callable[[], LoadTables] = LoadTables
    live: LiveLoads | None = None
    records: Sequence[StateCheck] = ()


async def examine(context: DoctorContext, *, within: float = 10.0, writes: bool = True) -> list[Check]:
    """Run the checks and return them in the order in which an operator would fix the problems.

    Returns only the first checks if a failure makes all later ones impossible. `within`: seconds to wait for a
    response. `writes`: also test the right to write below Bundlekeel's root."""
    checks = [await _store(context, within)]
    if not checks[0].ok:
        return checks
    checks += [
        _session(context),
        await _root(context, writes=writes),
        await document_check(context.coordination, context.records),
    ]
    checks += [await _members(context), _hosts(context), await migration_check(context.metadata)]
    if checks[-1].severity == "error" and not checks[-1].ok:
        return checks
    checks += await segment_checks(context.metadata)
    picture, check = await _picture(context, within)
    checks.append(check)
    if picture is None:
        return checks
    context.admin.set_endpoints(picture.endpoints)
    checks += await _identity(context, picture)
    tables, picture = await _listening(context, picture, within)
    checks += _reports(context, picture, tables)
    checks += [*_admin(context, picture), *await asyncio.to_thread(_reporting, context, picture)]
    checks.append(await jvm_check(context.admin, sorted(picture.endpoints)))
    if context.live is not None:
        twice = context.live.double_service.reports(context.clock.wall_ms())
        checks += [live_loads_check(context.live), *double_service_checks(twice)]
    record = await _takeover(context)
    checks += [*await _acting(context, record, picture), _load_manager(picture)]
    checks += [_shedding(context, picture, record)]
    checks += [_splitting(context, picture, record), await _leader(context)]
    checks += _load_topics(picture, tables)
    if context.channel is not None:
        checks += await channel_checks(context.channel, context.clock, within=within)
    checks += await asyncio.to_thread(_judged, context, picture)
    checks += [_placement(context, picture), *await _policies(context, picture)]
    return checks


def describe_store_failure(address: str, obstacle: str, within: float) -> str:
    """Return why a metadata store is unavailable: the connection error, or a time-out after `within` seconds."""
    return f"{address} cannot be used: {obstacle}" if obstacle else f"{address} did not answer within {within:.0f} s"


async def _store(context: DoctorContext, within: float) -> Check:
    waited = 0.0
    while not context.coordination.connected and waited < within:
        await context.clock.sleep(0.1)
        waited += 0.1
    if context.coordination.connected:
        return Check.passed("metadata store", f"{context.store_address} answers")
    return Check.failed(
        "metadata store",
        describe_store_failure(context.store_address, context.coordination.obstacle, within),
        "check `metadata_store` in the settings and that this host may reach the ZooKeeper client port",
    )


def _session(context: DoctorContext) -> Check:
    session = context.coordination.session_seconds
    ok = session >= 3 * context.heartbeat_seconds
    return Check(
        name="session",
        ok=ok,
        detail=f"negotiated {session:g} s, heartbeat every {context.heartbeat_seconds:g} s",
        fix="" if ok else "lower `leadership.heartbeat`, or raise maxSessionTimeout at the ZooKeeper servers",
    )


async def _root(context: DoctorContext, *, writes: bool) -> Check:
    try:
        document = await context.coordination.read("doctor")
        if not writes:
            return Check.passed("own root", "reads below Bundlekeel's root; `bundlekeel doctor` also writes there")
        version = document.version if document else None
        await context.coordination.write_shared("doctor", b"{}", version=version)
    except StaleWrite:
        pass  # another `doctor` wrote at the same time, so writing works
    except StoreError as error:
        fix = "grant create, read, write and delete below the `/bundlekeel` root to this identity"
        return Check.failed("own root", f"cannot write below Bundlekeel's root: {error}", fix)
    return Check.passed("own root", "reads and writes below Bundlekeel's root")


async def _members(context: DoctorContext) -> Check:
    try:
        members, leader = await context.coordination.members(), await context.coordination.leader()
    except StoreError as error:
        return Check.failed("sidecars", str(error), "try again")
    text = f"{numbered(len(members), 'seat')} taken, {'led by ' + leader.id if leader else 'no leader'}"
    urls = [member.url for member in members if member.url]
    by_settings: dict[str, list[str]] = {}
    for member in members:
        by_settings.setdefault(member.settings, []).append(member.id)
    if len(by_settings) > 1:
        apart = "; ".join(some(ids) for ids in by_settings.values())
        fix = "compare `bundlekeel config show --changed` on their hosts: the leader's settings file applies"
        return Check.warned("sidecars", f"{text}; settings differ between these groups of sidecars: {apart}", fix)
    local = [member for member in members if host_and_port(member.url)[0] in LOOPBACK]
    # A loopback address is fine if all sidecars run on one host: then all have one, with different ports.
    if not local or len(local) == len(urls) == len(set(urls)):
        return Check.passed("sidecars", text)
    names = some([member.id for member in local])
    return Check.warned(
        "sidecars",
        f"{text}; {names} registered a loopback address, so sidecars of other hosts cannot pass dry runs on to them",
        "on these hosts set `api.host: 0.0.0.0`, or `api.advertised_url` to an address that the others reach",
    )


def _hosts(context: DoctorContext) -> Check:
    detail = (
        f"{', '.join(context.hosts)}; /metrics and the probes: every IP address too; `api.allowed_hosts` adds names"
    )
    return Check.passed("hosts of the API", detail)


async def _picture(context: DoctorContext, within: float) -> tuple[RawClusterView | None, Check]:
    waited = 0.0
    while True:
        try:
            picture = await context.source.picture()
        except (StoreError, SnapshotError) as error:
            if waited < within:
                await asyncio.sleep(0.1)
                waited += 0.1
                continue
            fix = "check the chroot in `metadata_store` (brokers' metadataStoreUrl) and read rights on /loadbalance"
            return None, Check.failed("brokers", str(error), fix)
        if picture.endpoints or waited >= within / 4:
            break
        await asyncio.sleep(0.1)
        waited += 0.1
    count = len(picture.endpoints)
    fix = "" if count else "check the chroot in `metadata_store`: it must be the brokers' metadataStoreUrl"
    return picture, Check(name="brokers", ok=count > 0, detail=f"{count} registered, mode {picture.mode}", fix=fix)


async def _identity(context: DoctorContext, picture: RawClusterView) -> list[Check]:
    """Check that Bundlekeel's settings and the brokers have the same cluster name and configuration store."""
    name, store = "cluster name", "configuration store"
    try:
        await context.config.refresh(picture.endpoints, force=True)
    except WrongCluster as error:
        first = Check.failed(name, str(error), f"set cluster: {error.allowed}")
    else:
        first = _compared(name, context.config.adoptable().get("clusterName", ""))
    try:
        context.config.demand_configuration_store()
    except WrongCluster as error:
        return [first, Check.failed(store, str(error), f"set configuration_store: {error.allowed}")]
    except SnapshotError as error:
        return [first, Check.failed(store, str(error), "set configuration_store")]
    return [first, _compared(store, configuration_store(context.config.adoptable()))]


def _compared(name: str, theirs: str) -> Check:
    if theirs:
        return Check.passed(name, theirs)
    fix = "let this sidecar read the brokers' configuration: see the check `admin API`"
    return Check.warned(name, f"not compared: no broker has shown its {name}", fix)


async def _listening(
    context: DoctorContext, picture: RawClusterView, within: float
) -> tuple[LoadTables, RawClusterView]:
    """Wait for loads that brokers publish on topics; return the received tables and the current cluster view.

    Waits up to `within` seconds while this process connects to the topics, and then a few seconds for brokers that have
    published no load: a changed load arrives within seconds, but a steady load is not published for minutes."""
    start, tables = context.clock.boot(), context.feed()
    while picture.mode in _PUBLISHING:
        silent = tables.status.state == "ok" and any(item.code == Code.NO_LOAD_DATA for item in picture.excluded)
        patience = (
            within if tables.status.state in ("off", "connecting") else min(within, _LOADS_SECONDS) if silent else 0.0
        )
        if context.clock.boot() - start >= patience:
            break
        await context.clock.sleep(0.1)
        tables = context.feed()
        with suppress(StoreError, SnapshotError):
            picture = await context.source.picture()
    return tables, picture


def _reports(context: DoctorContext, picture: RawClusterView, tables: LoadTables) -> list[Check]:
    if not picture.excluded:
        return [Check.passed("reports", f"{len(picture.reports)} usable")]
    return [
        _not_received(context, item, tables)
        if picture.mode in _PUBLISHING and item.code == Code.NO_LOAD_DATA
        else _unusable(item)
        for item in picture.excluded
    ]


def _not_received(context: DoctorContext, item: ExcludedBroker, tables: LoadTables) -> Check:
    """Return the check of a broker from which this process has received no load yet.

    It passes until the longest interval between that broker's reports is over, and is a warning afterwards."""
    longest = context.used(context.config.values(item.broker_id) or {})[0].report_max_interval_seconds
    listened = (context.clock.wall_ms() - tables.status.since_ms) / 1000
    silence = f"a broker without changes publishes every {longest:g} s"
    if tables.status.state == "ok" and listened <= longest:
        detail = f"{item.broker_id} has published no load yet, in {max(0.0, listened):.0f} s; {silence}"
        return Check.passed("reports", detail)
    return Check.warned(
        "reports",
        f"{item.broker_id} has published no load since Bundlekeel subscribed; {silence}",
        "ask a sidecar that has been running for longer: `bundlekeel status`, or GET /api/v1/doctor",
    )


def _unusable(item: ExcludedBroker) -> Check:
    return Check.failed(
        "reports",
        f"{item.broker_id} is excluded: {item.code} {item.detail}".strip(),
        "check that broker's log and its node under /loadbalance/brokers; a restart rewrites it",
    )


def _admin(context: DoctorContext, picture: RawClusterView) -> list[Check]:
    failed = context.config.errors
    checks = []
    for broker, text in sorted(failed.items()):
        denied = "401" in text or "403" in text or AdminUnauthorized.__name__ in text
        fix = (
            "give `admin.token` or `admin.token_file` a super-user role's token"
            if denied
            else f"check that this host reaches {picture.endpoints[broker].web_url}"
        )
        checks.append(Check.failed("admin API", f"{broker}: {text}", fix))
    answered = len(picture.endpoints) - len(failed)
    if answered:
        checks.append(Check.passed("admin API", f"{numbered(answered, 'broker', 'show')} their configuration"))
    return checks


def _reporting(context: DoctorContext, picture: RawClusterView) -> list[Check]:
    """Return checks of the brokers' settings for measuring and reporting load.

    If brokers differ, a plan uses the largest value of each setting (`BrokerConfig`).
    """
    alike: dict[str, list[str]] = {}
    for broker in sorted(picture.endpoints):
        params, origins = context.used(context.config.values(broker) or {})
        texts = []
        for key in STOCK:
            (spec,) = BY_PULSAR_KEY[key]
            origin = "default of its release" if origins[spec.name] == "default" else origins[spec.name]
            texts.append(f"{key} {getattr(params, spec.name) / spec.factor:g} ({origin})")
        alike.setdefault(", ".join(texts), []).append(broker)
    name = "load reports of brokers"
    return [
        *(
            Check.passed(name, f"{f'all {len(who)} brokers' if len(alike) == 1 < len(who) else some(who)}: {text}")
            for text, who in alike.items()
        ),
        *_unusable_settings(context, picture),
    ]


def _unusable_settings(context: DoctorContext, picture: RawClusterView) -> list[Check]:
    errors_of = {broker: errors for broker in picture.endpoints if (errors := context.config.unusable(broker))}
    if not errors_of:
        return []
    error = next(iter(errors_of[min(errors_of)].values()))
    detail = (
        f"{error.code}: {error}; {some(sorted(errors_of))} {'is' if len(errors_of) == 1 else 'are'} read as if not set"
    )
    fix = "correct the setting in broker.conf or the dynamic configuration, and restart the broker if it is not dynamic"
    return [Check.warned("broker settings", detail, fix)]


def _load_manager(picture: RawClusterView) -> Check:
    classes = {endpoint.load_manager.rpartition(".")[2] for endpoint in picture.endpoints.values()}
    kinds = sorted(name or picture.mode for name in classes)
    ok = picture.mode in ACTED_ON
    fix = (
        "" if ok else "only ModularLoadManagerImpl and ExtensibleLoadManagerImpl are acted on; all others are observed"
    )
    if picture.mode == "mixed":
        fix = "finish the migration; `force_mixed` acts on the brokers with the class of the broker that started last"
    return Check(name="load manager", ok=ok, detail=", ".join(kinds), fix=fix, severity="error" if ok else "warning")


def _load_topics(picture: RawClusterView, tables: LoadTables) -> list[Check]:
    """Check that this process receives the topics on which brokers with the extensible load manager publish load."""
    if picture.mode not in _PUBLISHING:
        return []
    reporting = sum(1 for broker in picture.endpoints if (item := tables.latest.get(broker)) and item.load is not None)
    if tables.status.state == "ok":
        detail = f"followed; {reporting} of {len(picture.endpoints)} brokers have published their load"
        return [Check.passed("load topics", detail)]
    fix = "let this host reach the brokers' service ports; its identity must be allowed to consume in pulsar/system"
    return [Check.failed("load topics", f"{tables.status.state} {tables.status.detail}".strip(), fix)]


async def _takeover(context: DoctorContext) -> TakeoverRecord | None:
    try:
        document = await context.coordination.read(TAKEOVER)
        return decode_takeover(document.data) if document is not None else None
    except (StoreError, CodecError):
        return None


async def _acting(context: DoctorContext, record: TakeoverRecord | None, picture: RawClusterView) -> list[Check]:
    """Check, during a takeover of the brokers' load shedding, that a sidecar balances the bundles instead."""
    if record is None or not record.active:
        return []
    scope = f" for {some(record.namespaces)}" if record.namespaces else ""
    why, state = await why_nothing_balances(context.coordination), f"in force{scope}, by {record.by}"
    if not why and (absent := await unknown_namespaces(context.metadata, record.namespaces)):
        fix = "name the right one: `bundlekeel takeover --namespace TENANT/NAMESPACE`"
        return [Check.warned("takeover", f"{state}; {'; '.join(absent)}", fix)]
    if not why and record.namespaces and context.bundles == "top" and picture.mode in _PUBLISHING:
        fix = "set `extensible.bundles: all` in the settings file of each sidecar"
        state += ", but `extensible.bundles: top` does not show their bundles: nothing of them moves"
        return [Check.warned("takeover", state, fix)]
    if not why:
        return [Check.passed("takeover", state)]
    # A pause or a lower mode may be intended.
    build = Check.failed if why == NO_LEADER else Check.warned
    fix = "let a sidecar act (`bundlekeel status` says what stops it), or return the shedding: `bundlekeel handback`"
    return [build("takeover", f"{state}, and nothing balances: {why}", fix)]


def _off(name: str, state_of: Mapping[str, bool | None]) -> Check:
    """Return the passed check of a feature that is off on every broker; a warning if a broker could not be queried.

    `state_of`: by broker, False (off) or None (the broker could not be queried)."""
    if unknown := [broker for broker, on in state_of.items() if on is None]:
        return Check.warned(name, f"not known at {some(unknown)}: they show no settings", "see the check `admin API`")
    return Check.passed(name, "off on every broker")


def _shedding(context: DoctorContext, picture: RawClusterView, record: TakeoverRecord | None) -> Check:
    partial_takeover, aside = namespaces_of(record), put_aside(record)
    state_of = {broker: context.config.sheds(broker) for broker in sorted(picture.endpoints)}
    on = [broker for broker, sheds in state_of.items() if sheds]
    if not on:
        return _off("brokers' own shedding", state_of)
    if all(left_to_us(context.config.values(broker), partial_takeover) for broker in on):
        return Check.passed("brokers' own shedding", f"on, but leaves {', '.join(partial_takeover)} to Bundlekeel")
    detail = f"on at {some(on)}"
    if context.mode != "act":
        return Check.passed("brokers' own shedding", f"{detail}, as it should be in mode {context.mode}")
    again = " --again" if aside is not None else ""
    fix = f"run `bundlekeel takeover{again}`: in mode `act` nothing moves until these brokers stop shedding"
    if aside is not None:
        fix += f"; the failsafe returned their shedding at {clock_text(aside.wall_ms)}: `bundlekeel status` says why"
    return Check.failed("brokers' own shedding", detail, fix)


def _splitting(context: DoctorContext, picture: RawClusterView, record: TakeoverRecord | None) -> Check:
    name = "brokers' own splits"
    state_of = {broker: context.config.splits(broker) for broker in sorted(picture.endpoints)}
    on = [broker for broker, splits in state_of.items() if splits]
    if not on:
        return _off(name, state_of)
    unloads = any(context.config.unloads_splits(broker) for broker in on)
    detail = f"on at {some(on)}" + ("; they also unload the split bundles" if unloads else "")
    if not turned_off(record):
        return Check.passed(name, detail)
    detail += ", though the takeover turned them off"
    return Check.warned(name, detail, REMEDY)


async def _leader(context: DoctorContext) -> Check:
    try:
        leader = await context.metadata.metadata_leader()
    except BundlekeelError as error:
        return Check.failed("Pulsar's leader broker", str(error), "try again in a few seconds")
    fix = "" if leader else "no broker leads the load manager, which transfers need; check the brokers' logs"
    return Check(name="Pulsar's leader broker", ok=leader is not None, detail=leader or "none", fix=fix)


def _judged(context: DoctorContext, picture: RawClusterView) -> list[Check]:
    if picture.reports:
        return [
            _blind(context, picture),
            _limits(context, picture),
            _shared_machine(context, picture),
            clocks_check(picture, context.clock.wall_ms()),
        ]
    return [
        Check.warned(
            "broker loads",
            "none is known yet, so bandwidth, CPU figures and clocks were not checked",
            "ask a sidecar that runs: `bundlekeel doctor --for act`",
        )
    ]


def _blind(context: DoctorContext, picture: RawClusterView) -> Check:
    if picture.mode == "extensible":
        return Check.passed("bandwidth", "extensible brokers report a score, no limits")
    blind = []
    for report in picture.reports:
        override = match_capacity(context.capacity, report.broker_id)
        has_override = override is not None and (override.nic_gbps is not None or override.throughput is not None)
        if not has_override and not (report.limit[BANDWIDTH_IN] > 0 and report.limit[BANDWIDTH_OUT] > 0):
            blind.append(report.broker_id)
    if not blind:
        return Check.passed("bandwidth", "every broker has a bandwidth limit")
    return Check.warned(
        "bandwidth",
        f"no network limit reported by {some(blind)}: their traffic does not count in the score",
        'name the limit, e.g. `capacity: {"*": {nic_gbps: 10}}` or `{"*": {throughput: 100000000}}`',
    )


def _limits(context: DoctorContext, picture: RawClusterView) -> Check:
    snapshot = build_snapshot(
        reports=picture.reports,
        averages=Averages(),
        wall_ms=picture.wall_ms,
        mode=picture.mode,
        capacity=context.capacity,
    )
    limits = wrong_limits(snapshot.brokers)
    if not limits:
        return Check.passed("limits", "no broker uses more than its limits allow")
    detail = some([f"{item.broker} ({item.resource})" for item in limits])
    return Check.warned("limits", f"ignored, since the broker uses more: {detail}", limits[0].fix)


def _shared_machine(context: DoctorContext, picture: RawClusterView) -> Check:
    """Check that brokers do not share a machine.

    Brokers on one machine without own cgroups all report the CPU of the whole machine: nearly the same values, even
    if their loads differ.
    """
    reports = []
    for report in picture.reports:
        override = match_capacity(context.capacity, report.broker_id)
        if override is None or "cpu" not in override.ignore:
            reports.append(report)
    usage = [float(report.usage[CPU]) for report in reports]
    limits = {float(report.limit[CPU]) for report in reports}
    traffic = [float(report.traffic.sum()) for report in reports]
    alike = len(reports) > 1 and len(limits) == 1 and max(usage) - min(usage) <= CPU_ALIKE_SHARE * max(limits)
    if not alike or max(usage, default=0.0) <= 0 or max(traffic) < 2 * min(traffic) or max(traffic) <= 0:
        return Check.passed("CPU figures", "no sign that brokers share a CPU")
    return Check.warned(
        "CPU figures",
        f"{len(reports)} brokers report the same CPU at very different traffic: they seem to share a machine",
        'give each broker its own CPU limit (cgroup), or `capacity: {"*": {cpu: ignore, throughput: ...}}`',
    )


async def _policies(context: DoctorContext, picture: RawClusterView) -> list[Check]:
    """Check the policies that restrict on which brokers a bundle may be.

    A policy that is unreadable or matches no live broker blocks moves."""
    named = sorted({namespace_of(bundle) for report in picture.reports for bundle in report.bundle_names})
    book = PolicyCache(context.metadata, context.config)
    policies = await book.read(named)
    for _ in range(_PATIENCE):
        if not policies.unknown:
            break
        await context.clock.sleep(0.2)  # the session with the configuration store may still be connecting
        policies = await book.read(named)
    if policies.unknown:
        fix = "check `configuration_store` in the settings; nothing moves until then"
        return [Check.failed("policies", f"could not be read: {policies.unknown}", fix)]
    return [_readable(policies), *unmatched_checks(policies.isolation, tuple(sorted(picture.endpoints)))]


def _readable(policies: Policies) -> Check:
    texts = [text for policy in policies.isolation for text in (*policy.namespaces, *policy.primary, *policy.secondary)]
    foreign = [repr(text) for text in texts if java_pattern(text) is None]
    if foreign:
        detail = f"expressions that cannot be matched as Java does: {', '.join(foreign[:3])}"
        fix = (
            "write them without back-references, possessive quantifiers, class unions, intersections or "
            "\\p{...}; bundles they may concern do not move"
        )
        return Check.warned("policies", detail, fix)
    if policies.unreadable:
        detail = f"policies of {len(policies.unreadable)} namespaces cannot be read, e.g. {min(policies.unreadable)}"
        fix = "repair their local policies (`pulsar-admin namespaces`); their bundles do not move until then"
        return Check.warned("policies", detail, fix)
    grouped = len(policies.anti_affinity)
    return Check.passed("policies", f"{len(policies.isolation)} isolation policies, {grouped} in groups")


def _placement(context: DoctorContext, picture: RawClusterView) -> Check:
    if picture.mode == "extensible":
        detail = "the extensible load manager has its own placement and ignores loadBalancerLoadPlacementStrategy"
        return Check.passed("placement of new bundles", detail)
    values = context.config.adoptable()
    placement = values.get("loadBalancerLoadPlacementStrategy", "")
    if placement.endswith("AvgShedder"):
        fix = f"{SET_PLACEMENT} the brokers one by one"
        detail = "AvgShedder places at random once the brokers' shedding is off (Pulsar issue 24581)"
        return Check.warned("placement of new bundles", detail, fix)
    return Check.passed("placement of new bundles", placement.rpartition(".")[2] or "unknown")
