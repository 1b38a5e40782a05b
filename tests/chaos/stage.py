"""The stage of the chaos tests: one real cluster, a recorder on every address it advertises, steady traffic."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from bundlekeel.pulsar.admin.routes import is_harmless
from dev.cluster import BrokerInfo, Cluster, ClusterSpec, open_cluster
from dev.sidecar import Sidecar, bundlekeel, leader_of, running, settings_for
from dev.traffic import AdminError, Traffic, TrafficSpec
from dev.traffic import admin as broker_admin
from tests.chaos.zk import children, kazoo, owner_of, read
from tests.support.recorder import RecordedRequest, Recorder

BUNDLES = 24
# The brokers share a machine. Their capacity is set, so that only the traffic decides.
CAPACITY = {"*": {"cpu": "ignore", "throughput": 2_000_000}}
# The brokers of the stage refresh their traffic every second, and CPU does not count: nothing else is waited for.
QUICK = {
    "capacity": CAPACITY,
    "cycle": {"interval": "1s"},
    "store": {"session_timeout": "5s", "call_timeout": "2s"},
    "leadership": {"heartbeat": "1s"},
    "admin": {"read_timeout": "5s"},
}
EAGER = {"move_price": 0, "host_usage_interval_seconds": 1}
# Never by itself: only plans that the test asks for are carried out.
PATIENT = {"move_price": 1e9, "host_usage_interval_seconds": 1}
UNLIMITED = dict.fromkeys(
    ("max_moves_per_cycle", "max_moves_per_source", "max_moves_per_target", "max_moves_per_namespace"), 1000
)
_UNLOAD = re.compile(r"/admin/v2/namespaces/(.+)/unload")


def until(holds: Callable[[], Any], what: object, *, within: float) -> Any:
    """Poll until `holds()` is true and return its value. `what` describes the condition in the error after a
    time-out.
    """
    deadline = time.monotonic() + within
    while not (value := holds()):
        assert time.monotonic() < deadline, f"not within {within:.0f} s: {what}"
        time.sleep(0.05)
    return value


@dataclass(frozen=True, slots=True)
class Unload:
    """One unload request, redirected ones included."""

    bundle: str
    member: str
    target: str
    wall_ms: float


class Scene:
    """A cluster with traffic, and sidecars that come and go."""

    def __init__(self, cluster: Cluster, traffic: Traffic) -> None:
        self.cluster = cluster
        self.traffic = traffic
        self.plans = traffic.prepare()
        self.root = ""

    # --- before a test -----------------------------------------------------------------------------------

    def gather(self) -> None:
        """Heal everything and put every busy bundle on the first broker."""
        for name in ("zookeeper", *(broker.name for broker in self.cluster.brokers)):
            if self.cluster.paused(name):
                self.cluster.resume(name)
            if not self.cluster.alive(name):
                self.cluster.restart(name)
        until(self._placed, "the first broker has all bundles", within=120)

    def _placed(self) -> bool:
        # Clients look their topics up at the same moment, and now and then they win a bundle several times.
        try:
            self.traffic.place_all_on(self.cluster.brokers[0].broker_id)
        except AdminError:
            return False
        return True

    @contextmanager
    def sidecars(self, names: str, directory: Path, *, start: bool = True, **changes: Any) -> Iterator[list[Sidecar]]:
        """Sidecars named by letters, with a root of their own; they know their leader when this returns."""
        merged: dict[str, Any] = {**QUICK, **changes}
        for key, value in QUICK.items():
            if isinstance(changes.get(key), Mapping):
                merged[key] = {**value, **changes[key]}
        name = f"chaos-{uuid.uuid4().hex[:8]}"
        self.root = f"/pulsar/bundlekeel/{name}"
        with running(self.cluster, list(names), directory, start=start, root=name, **merged) as sidecars:
            if start:
                until(lambda: leader_of(sidecars), "somebody leads", within=30)
                for item in sidecars:
                    item.until(lambda item=item: ready(item), "it is ready", within=30)
            yield sidecars

    # --- what happened -----------------------------------------------------------------------------------

    def owners(self) -> dict[str, str]:
        """Return the owner of each busy bundle, as ZooKeeper contains it."""
        with kazoo(self.cluster) as client:
            return {plan.bundle: owner_of(client, plan.bundle) for plan in self.plans}

    def max_mean(self) -> float:
        """Return the maximum over the mean of the traffic by its real rates and owners; infinite while a bundle has
        none.
        """
        owners, rates = self.owners(), Counter[str]()
        for plan in self.plans:
            rates[owners[plan.bundle]] += plan.rate
        if rates[""]:
            return float("inf")
        return max(rates.values()) / (sum(rates.values()) / len(self.cluster.brokers))

    def intents(self) -> list[str]:
        """The bundles with an intent."""
        with kazoo(self.cluster) as client:
            return [unquote(name) for name in children(client, f"{self.root}/intents")]

    def nodes(self, path: str) -> list[str]:
        """The names below a node below the root of the sidecars."""
        with kazoo(self.cluster) as client:
            return children(client, f"{self.root}/{path}")

    def document(self, path: str) -> Any:
        """A plain JSON node below the root of the sidecars, None when absent."""
        with kazoo(self.cluster) as client:
            data = read(client, f"{self.root}/{path}")
        return None if data is None else json.loads(data)

    def leader_broker(self) -> BrokerInfo:
        """The brokers' own leader, who gets an unload first."""
        with kazoo(self.cluster) as client:
            document = json.loads(read(client, "/pulsar/loadbalance/leader") or b"{}")
        url = str(document.get("serviceUrl", ""))
        return next(broker for broker in self.cluster.brokers if broker.web_url in url)


class Stage(Scene):
    """A scene with a recorder on every address that the brokers advertise."""

    def __init__(self, cluster: Cluster, recorder: Recorder, traffic: Traffic) -> None:
        super().__init__(cluster, traffic)
        self.recorder = recorder

    def gather(self) -> None:
        """Heal everything, also what the recorder breaks, and forget what it saw."""
        self.recorder.heal()
        super().gather()
        self.recorder.clear()

    def requests(self, member: str = "") -> list[RecordedRequest]:
        """Return the requests that a sidecar (or all of them) sent to brokers."""
        calls = self.recorder.requests("bundlekeel")
        return [item for item in calls if not member or item.user_agent.endswith(f"({member})")]

    def mutations(self, member: str = "") -> list[RecordedRequest]:
        """Return the requests that are not on the allow-list of reads."""
        return [r for r in self.requests(member) if not is_harmless(r.method, f"http://{r.target}{url_of(r)}")]

    def unloads(self, member: str = "") -> list[Unload]:
        """Every unload a sidecar asked for; the destination is named to the first broker only, who remembers it."""
        unloads = []
        for request in self.requests(member):
            match = _UNLOAD.fullmatch(unquote(request.path))
            if request.method == "PUT" and match is not None:
                who = request.user_agent.rpartition("(")[2].rstrip(")")
                unloads.append(Unload(match[1], who, request.target, request.wall_ms))
        return unloads


def asked_twice(unloads: Sequence[Unload], moves: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the signs that an intent was executed or recorded more than once. A broker may get at most one request per
    intent of a bundle, from all sidecars together.
    """
    intents = Counter((move["bundle"], move["intent"]) for move in moves if move["intent"])
    of_bundle = Counter(bundle for bundle, _ in intents)
    counts = Counter((item.bundle, item.target) for item in unloads)
    return [
        f"intent {intent} of {bundle} has {times} records" for (bundle, intent), times in intents.items() if times > 1
    ] + [
        f"{bundle} was unloaded {times} times at {target}, for {of_bundle[bundle]} intents"
        for (bundle, target), times in counts.items()
        if times > of_bundle[bundle]
    ]


def url_of(request: RecordedRequest) -> str:
    """Path and query as sent."""
    return f"{request.path}?{request.query}" if request.query else request.path


def web_address(broker: BrokerInfo) -> str:
    """The recorder's address for a broker's web port."""
    return f"{broker.advertised_host}:{broker.web_port}"


def ready(sidecar: Sidecar) -> bool:
    """Whether it says so."""
    return (sidecar.get("/readyz", raw=True) or "").strip().endswith("ok")


def make_plan(sidecar: Sidecar, **parameters: Any) -> dict[str, Any]:
    """A dry run at once, whatever the hit counts; parameters on top."""
    answer = sidecar.post("/api/v1/plans", {"ignore_hit_counts": True, "parameters": parameters})
    assert answer.status_code == 200, answer.text
    plan: dict[str, Any] = answer.json()
    return plan


def task_of(sidecar: Sidecar, task: str) -> dict[str, Any] | None:
    """An execution as this sidecar knows it."""
    return next((item for item in sidecar.get("/api/v1/tasks") or [] if item["task"] == task), None)


def carry_out(
    stage: Stage,
    sidecar: Sidecar,
    before: Callable[[dict[str, Any]], None] = lambda _plan: None,
    *,
    undo: Callable[[], None] = lambda: None,
    at_least: int = 1,
    **parameters: Any,
) -> tuple[dict[str, Any], str]:
    """Make a plan, prepare (`before`), ask for its execution; again with a new plan when inputs changed meanwhile.

    Returns the plan and the task once one of its unloads was asked for or the task is done.
    """
    execution: dict[str, Any] = {}
    for _ in range(15):
        plan = until(
            lambda: (new_plan := make_plan(sidecar, **parameters)) and len(new_plan["moves"]) >= at_least and new_plan,
            "there is something to move",
            within=40,
        )
        before(plan)
        answer = sidecar.post(f"/api/v1/plans/{plan['hash']}/execute", {"reason": "chaos", "by": "test"})
        if answer.status_code == 409:  # the inputs changed before the leader was asked
            undo()
            time.sleep(0.5)
            continue
        assert answer.status_code == 202, answer.text
        task = answer.json()["task"]
        unloads_before = len(stage.unloads())

        def find_begun(task: str = task, unloads_before: int = unloads_before) -> dict[str, Any] | None:
            execution = task_of(sidecar, task)
            if execution is None or (
                execution["state"] in ("waiting", "running") and len(stage.unloads()) <= unloads_before
            ):
                return None
            return execution

        execution = until(find_begun, "the leader takes the request", within=60)
        if "inputs changed" not in execution["detail"] and "not carried out" not in execution["detail"]:
            return plan, task
        undo()
        time.sleep(0.5)
    raise AssertionError(f"the inputs change faster than a plan can be carried out: {execution}")


def carry_out_hurt(
    stage: Stage, sidecar: Sidecar, *, seconds: float | None = None, at_least: int = 1
) -> tuple[dict[str, Any], str, Callable[[], None]]:
    """Execute a plan while the broker that gets the first unloads responds after `seconds`, or never (None). The third
    value returned ends that fault.
    """
    hop = web_address(stage.leader_broker())

    def hurt(on: bool) -> None:
        if seconds is None:
            stage.recorder.freeze(on, hop)
        else:
            stage.recorder.set_delay(seconds if on else 0.0, hop)

    heal = partial(hurt, False)
    return *carry_out(stage, sidecar, lambda _plan: hurt(True), undo=heal, at_least=at_least), heal


def ended(sidecar: Sidecar, task: str, *, within: float) -> dict[str, Any]:
    """Wait for the end of an execution."""

    def over() -> dict[str, Any] | None:
        execution = task_of(sidecar, task)
        return execution if execution and execution["state"] in ("done", "failed", "stopped") else None

    execution: dict[str, Any] = until(over, "the execution ends", within=within)
    return execution


def traffic_spec(cluster: Cluster, namespace: str = "demo/traffic", **spec: Any) -> TrafficSpec:
    """Traffic on a namespace of this cluster."""
    admin_url = cluster.brokers[0].web_url
    return TrafficSpec(**{"service_url": cluster.service_url, "admin_url": admin_url, "namespace": namespace, **spec})


def traffic_for(cluster: Cluster) -> Traffic:
    """Steady traffic on 24 bundles of like size: a plan has some fifteen moves, enough for every fault at once."""
    return Traffic(traffic_spec(cluster, "chaos/traffic", bundles=BUNDLES, rate_total_msgs=600.0, zipf=0.4))


def person(cluster: Cluster, directory: Path, name: str = "person", **changes: Any) -> Path:
    """A file of settings for commands that need no sidecar; their root has the same name unless given."""
    path = directory / f"{name}.json"
    settings = settings_for(cluster, name, directory, **{"root": name, **changes})
    path.write_text(json.dumps(settings), encoding="utf-8")
    return path


def change_hands(command: str, config: Path, *more: str) -> None:
    """`takeover` or `handback` of the brokers' own shedding, from the command line."""
    done = bundlekeel(command, "-c", str(config), "--yes", "--reason", "test", *more, within=120)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def taken_over(cluster: Cluster, directory: Path) -> Iterator[None]:
    """Meanwhile the brokers' own shedding is off."""
    config = person(cluster, directory)
    change_hands("takeover", config)
    try:
        yield
    finally:
        change_hands("handback", config)


def lead_and_follow(sidecars: list[Sidecar]) -> tuple[Sidecar, list[Sidecar]]:
    """Wait for a leader and return it with its followers."""
    leader: Sidecar = until(lambda: leader_of(sidecars), "somebody leads", within=40)
    return leader, [item for item in sidecars if item is not leader]


def admin(broker: BrokerInfo, method: str, path: str, body: object | None = None) -> bytes:
    """A call of a broker's admin API that must succeed; what it answers."""
    status, answer = broker_admin.request(method, f"{broker.web_url}/admin/v2/{path}", body)
    assert status in (200, 204), f"{method} {path}: {status} {answer[:600]!r}"
    return answer


def overrides(cluster: Cluster) -> dict[str, str]:
    """The brokers' dynamic overrides."""
    return dict(json.loads(admin(cluster.brokers[0], "GET", "brokers/configuration/values")))


@contextmanager
def open_stage(directory: Path, **spec: Any) -> Iterator[Stage]:
    """Start it all: recorder before the brokers, own shedding of the brokers off, traffic on."""
    with ExitStack() as stack:
        recorders: list[Recorder] = []

        def listen(brokers: list[BrokerInfo]) -> None:
            recorders.append(stack.enter_context(Recorder.for_cluster(brokers, service_ports=False)))

        cluster = stack.enter_context(open_cluster(ClusterSpec(advertise="proxy", **spec), listen))
        change_hands("takeover", person(cluster, directory, "chaos"))
        traffic = traffic_for(cluster)
        traffic.place_all_on(cluster.brokers[0].broker_id)
        stack.enter_context(traffic)
        yield Stage(cluster, recorders[0], traffic)
