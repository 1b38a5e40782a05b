"""A secured cluster: TLS, tokens and authorization at the brokers, TLS and SASL at ZooKeeper. A sidecar with its own
role balances it, rejects clients without a role, and never reveals a secret.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pulsar
import pytest
from cryptography import x509

from bundlekeel.model.errors import StoreError
from bundlekeel.pulsar.zookeeper.client import ZkClient
from bundlekeel.pulsar.zookeeper.connection import StoreIdentity
from bundlekeel.settings.credentials import new_token
from bundlekeel.settings.tls import ClientTls
from dev.cluster import Cluster, ClusterSpec, open_cluster
from dev.sidecar import Sidecar, bundlekeel, secrets_of, secured, settings_for
from tests.chaos.stage import EAGER, QUICK, until
from tests.support.contracts.coordination import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.cluster, pytest.mark.timeout(600)]

NAMESPACE = "secure/orders"
PARTITIONS = 24
REASON = {"reason": "test", "by": "mallory"}
OWN_SHEDDING_OFF = {"loadBalancerSheddingEnabled": "false", "loadBalancerAutoBundleSplitEnabled": "false"}


class Person:
    """A client of the brokers with the token of a role."""

    def __init__(self, cluster: Cluster, role: str) -> None:
        security = cluster.security
        self.cluster = cluster
        self.token_file = security.tokens[role]
        tls = ClientTls(trust_certs=security.ca).context(field="test")
        headers = {"Authorization": f"Bearer {self.token_file.read_text()}"}
        self._http = httpx.Client(verify=tls, headers=headers, trust_env=False, timeout=30.0)

    def ask(self, method: str, path: str, *, body: Any = None, at: int = 0) -> httpx.Response:
        """One request below /admin/v2; redirects are followed by hand, as the token must go along."""
        url = f"{self.cluster.brokers[at].web_url}/admin/v2/{path}"
        for _ in range(5):
            answer = self._http.request(method, url, json=body)
            if answer.status_code != 307:
                break
            url = answer.headers["location"]
        return answer

    def __enter__(self) -> Person:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def without_token(self) -> Person:
        """Return the same client without a token."""
        self._http.headers.pop("Authorization")
        return self

    def client(self) -> pulsar.Client:
        """pulsar-client over TLS."""
        return pulsar.Client(
            self.cluster.service_url,
            authentication=pulsar.AuthenticationToken(self.token_file.read_text()),
            tls_trust_certs_file_path=str(self.cluster.security.ca),
            tls_validate_hostname=True,
        )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three secured brokers."""
    with open_cluster(ClusterSpec(brokers=3, secure=True, broker_settings=OWN_SHEDDING_OFF)) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Iterator[Person]:
    """A super-user, who has made a namespace in which role `client` may produce and consume."""
    with Person(cluster, "admin") as person:
        body = {"adminRoles": [], "allowedClusters": [cluster.spec.cluster_name]}
        assert person.ask("PUT", "tenants/secure", body=body).status_code == 204
        bundles = {"bundles": {"numBundles": 12}, "replication_clusters": [cluster.spec.cluster_name]}
        assert person.ask("PUT", f"namespaces/{NAMESPACE}", body=bundles).status_code == 204
        granted = person.ask("POST", f"namespaces/{NAMESPACE}/permissions/client", body=["produce", "consume"])
        assert granted.status_code == 204
        yield person


@pytest.fixture(scope="module")
def traffic(cluster: Cluster, admin: Person) -> Iterator[None]:
    """Steady traffic of role `client`, all of it on the first broker at first."""
    assert admin.ask("PUT", f"persistent/{NAMESPACE}/t/partitions", body=PARTITIONS).status_code == 204
    with Person(cluster, "client") as person:
        client, ends = person.client(), threading.Event()
    producer = client.create_producer(f"persistent://{NAMESPACE}/t", block_if_queue_full=True)

    def produce() -> None:
        while not ends.wait(0.005):
            producer.send_async(b"x" * 2048, lambda *_: None)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    first = cluster.brokers[0].broker_id
    for number in range(12):
        step = 0x1_0000_0000 // 12
        low, high = number * step, (number + 1) * step if number < 11 else 0xFFFFFFFF
        path = f"namespaces/{NAMESPACE}/0x{low:08x}_0x{high:08x}/unload?destinationBroker={first}"
        answer = admin.ask("PUT", path)
        assert answer.status_code in (204, 412), answer.text
    yield
    ends.set()
    thread.join(10)
    client.close()


class SafeSidecar:
    """A sidecar with identities of its own, and the files that hold them."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        security = cluster.security
        self.directory = directory
        self.secrets = secrets_of(cluster, directory)
        self.broker_token = directory / "broker.token"
        self.broker_token.write_text(security.tokens["bundlekeel"].read_text())
        tokens = {role: new_token(f"the-{role}", role) for role in ("viewer", "operator", "admin")}
        self.tokens = {role: token for role, (token, _) in tokens.items()}
        (directory / "tokens").write_text("".join(f"{line}\n" for _, line in tokens.values()))
        self.ca = security.ca
        pair = security.bundlekeel
        settings = settings_for(cluster, "safe", directory, **QUICK, parameters=EAGER)
        for section, identity in secured(cluster, self.broker_token).items():
            settings[section] = {**settings.get(section, {}), **identity}
        settings["api"] = {
            **settings["api"],
            "auth": {"tokens_file": str(directory / "tokens"), "failures_per_minute": 10_000},
            "tls": {"cert_file": str(pair.cert), "key_file": str(pair.key), "trust_certs_file": str(self.ca)},
        }
        self.sidecar = Sidecar("safe", settings, directory)

    @property
    def hidden(self) -> list[str]:
        """Return the secrets that must not appear anywhere."""
        broker = self.broker_token.read_text()
        return [(self.secrets / "store__sasl_password").read_text(), broker, *self.tokens.values()]

    @property
    def url(self) -> str:
        """Return the address of the TLS port."""
        match = re.search(r'"url": ?"(https://[^"]+)"', self.sidecar.log.read_text())
        assert match is not None
        return match[1]

    @contextmanager
    def http(self, role: str = "") -> Iterator[httpx.Client]:
        """A client with the token of a role, or without any."""
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}
        tls = ClientTls(trust_certs=self.ca).context(field="test")
        with httpx.Client(base_url=self.url, verify=tls, headers=headers, trust_env=False, timeout=30.0) as client:
            yield client


@pytest.fixture(scope="module")
def safe(cluster: Cluster, admin: Person, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SafeSidecar]:
    """The sidecar runs in mode act for the whole module."""
    made = SafeSidecar(cluster, tmp_path_factory.mktemp("safe"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BUNDLEKEEL_SECRETS_DIR", str(made.secrets))
        made.sidecar.start()
        yield made
        code = made.sidecar.stop()
        made.sidecar.close()
        assert code == 0


def test_it_leads_and_its_doctor_finds_nothing_wrong(safe: SafeSidecar) -> None:
    """All connections are up with the configured identities, and every permission is granted."""
    until(lambda: safe.sidecar.get("/api/v1/state")["role"] == "leader", "it leads", within=60)
    until(lambda: not [c for c in safe.sidecar.get("/api/v1/doctor") if not c["ok"] and c["severity"] == "error"],
          "doctor is content", within=60)  # fmt: skip


def test_one_balanced_move(safe: SafeSidecar, traffic: None) -> None:
    """All traffic is on one broker: the least privileged role moves a bundle, and it lands."""
    moved = until(lambda: [m for m in safe.sidecar.moves() if m["outcome"] == "done"], "a move landed", within=180)
    assert moved[0]["landed_on"] == moved[0]["destination"] != moved[0]["source"]


def test_each_mutating_route_asks_who_one_is(safe: SafeSidecar) -> None:
    """Over TLS: 401 without credentials, 403 for a viewer, on every route of the document that is not a GET."""
    with safe.http() as nobody, safe.http("viewer") as viewer:
        paths = viewer.get("/api/v1/openapi.json").json()["paths"]
        routes = [(method.upper(), path) for path, item in paths.items() for method in item if method != "get"]
        assert len(routes) >= 4
        for method, path in routes:
            filled = re.sub(r"\{[^}]+\}", "x", path)
            assert nobody.request(method, filled, json=REASON).status_code == 401, (method, path)
            answer = viewer.request(method, filled, json=REASON)
            assert answer.status_code == 403, (method, path, answer.text)
        assert nobody.get("/api/v1/state").status_code == 401
        assert nobody.get("/metrics").status_code == nobody.get("/livez").status_code == 200


def test_a_mutation_carries_the_authenticated_name(safe: SafeSidecar) -> None:
    """A sender in the body is ignored, and the journal's chain is valid."""
    with safe.http("operator") as operator:
        answer = operator.post("/api/v1/pause", json=REASON | {"seconds": 5})
        assert answer.status_code == 200 and answer.json()["by"] == "the-operator"
        assert operator.post("/api/v1/resume", json=REASON).status_code == 200
        assert operator.put("/api/v1/mode", json=REASON | {"mode": "act"}).status_code == 403
    records = safe.sidecar.get("/api/v1/journal", kind="audit", limit=10)
    assert {record["by"] for record in records} == {"the-operator"}
    verified = bundlekeel("journal", "verify", "-c", str(safe.sidecar.config), "-o", "json")
    assert verified.returncode == 0 and json.loads(verified.stdout)["lines"] > 0


def serial_shown(safe: SafeSidecar) -> int:
    """The serial number of the certificate that a new connection is shown."""
    address = urlsplit(safe.url)
    pem = ssl.get_server_certificate((address.hostname or "", address.port or 0), timeout=10.0)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def test_a_rotated_token_and_a_renewed_certificate(safe: SafeSidecar, cluster: Cluster) -> None:
    """Both take effect while it runs: brokers refuse the old token, and clients see the new certificate."""
    fresh = safe.directory / "fresh"
    fresh.write_text(cluster.security.token("bundlekeel", iat=int(time.time())))
    fresh.replace(safe.broker_token)
    before = serial_shown(safe)
    cluster.security.issue("bundlekeel", ["127.0.1.1"])
    issued = x509.load_pem_x509_certificate(cluster.security.bundlekeel.cert.read_bytes()).serial_number
    assert issued != before
    until(lambda: serial_shown(safe) == issued, "the new certificate is shown", within=60)
    with safe.http("viewer") as viewer:
        assert viewer.get("/api/v1/state").status_code == 200
        failing = [item for item in viewer.get("/api/v1/doctor").json() if not item["ok"]]
    assert not [item for item in failing if item["severity"] == "error"]


def test_a_role_without_rights_is_told_so(cluster: Cluster, admin: Person) -> None:
    """Our role is necessary: the brokers refuse an unload by role `client`, and one without a token."""
    bundle = f"namespaces/{NAMESPACE}/0x00000000_0x15555555/unload"
    with Person(cluster, "client") as person, Person(cluster, "client") as stranger:
        assert person.ask("PUT", bundle).status_code in (401, 403)
        assert stranger.without_token().ask("GET", "brokers").status_code == 401


# kazoo's thread ends with an exception where the server wants SASL and there is no user.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_our_nodes_belong_to_us(safe: SafeSidecar, cluster: Cluster) -> None:
    """Without a user there is no session; another user reads the brokers' nodes, and neither reads nor writes ours."""

    async def tried(identity: StoreIdentity) -> list[str]:
        client = ZkClient(cluster.zk_hosts, "/pulsar", session_seconds=5.0, call_timeout_seconds=3.0, identity=identity)
        client.start()
        outcomes = []
        try:
            with suppress(AssertionError):
                await eventually(lambda: client.connected, within=5.0)
            for call in (
                client.children("/loadbalance/brokers"),
                client.get("/bundlekeel/local/epoch"),
                client.create("/bundlekeel/local/desired/forged", b"{}"),
            ):
                try:
                    await call
                    outcomes.append("done")
                except StoreError:
                    outcomes.append("refused")
        finally:
            await client.close()
        return outcomes

    tls = ClientTls(trust_certs=cluster.security.ca)
    users = cluster.security.passwords
    until(lambda: safe.sidecar.get("/api/v1/state")["role"] == "leader", "our root is made", within=60)
    assert asyncio.run(tried(StoreIdentity(tls=tls))) == ["refused"] * 3
    wrong = StoreIdentity(username="bundlekeel", password="wrong", tls=tls)
    assert asyncio.run(tried(wrong)) == ["refused"] * 3
    other = StoreIdentity(username="pulsar", password=users["pulsar"], tls=tls)
    assert asyncio.run(tried(other)) == ["done", "refused", "refused"]
    ours = StoreIdentity(username="bundlekeel", password=users["bundlekeel"], owned=True, tls=tls)
    assert asyncio.run(tried(ours))[:2] == ["done", "done"]


def test_no_secret_is_found_anywhere(safe: SafeSidecar, cluster: Cluster) -> None:
    """In no log, journal, answer, metric, command line or environment, of ours or of the brokers."""
    with safe.http("admin") as client:
        paths = ("settings", "state", "whoami", "journal?limit=1000", "doctor", "tasks", "brokers", "openapi.json")
        texts = {path: client.get(f"/api/v1/{path}").text for path in paths}
        texts["metrics"] = client.get("/metrics").text
        texts["wrong"] = client.get("/api/v1/state", headers={"Authorization": "Bearer c4nary-in-a-header"}).text
    output = bundlekeel("config", "show", "-c", str(safe.sidecar.config), "-o", "json")
    texts["config show"] = output.stdout + output.stderr
    texts["config file"] = safe.sidecar.config.read_text()
    for file in (*safe.directory.glob("safe*.log"), *safe.directory.glob("*.jsonl*")):
        texts[file.name] = file.read_text(errors="replace")
    for file in (cluster.data_dir / "logs").iterdir():
        texts[file.name] = file.read_text(errors="replace")
    own = psutil.Process(safe.sidecar.pid)
    for process in (own, *own.children(recursive=True)):
        texts[f"command line of {process.pid}"] = " ".join(process.cmdline())
        texts[f"environment of {process.pid}"] = str(process.environ())
    for name in cluster.names:
        texts[f"command line of {name}"] = " ".join(psutil.Process(cluster.pid(name)).cmdline())
    leaks = [where for where, text in texts.items() for secret in (*safe.hidden, "c4nary") if secret in text]
    assert not leaks
