"""Start and stop a control plane on 127.0.0.1, on free ports: `with control_plane() as kubernetes`."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import trustme
import yaml

from dev.cluster.ports import free_ports
from dev.cluster.process import Child, Spawner
from dev.kubernetes.programs import ensure

HOST = "127.0.0.1"
# A busy machine can take minutes for what takes four seconds on an idle one.
START_SECONDS = 300.0
STOP_SECONDS = 20.0
HERE = Path(__file__).parent


class CommandError(RuntimeError):
    """A command failed. The message is its output."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane: its address, its directory, and commands of its administrator."""

    url: str
    folder: Path
    programs: Path

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig file, with the administrator's credentials."""
        return self.folder / "kubeconfig"

    @property
    def ca(self) -> Path:
        """The certificate authority of the API server."""
        return self.folder / "ca.crt"

    def run(self, program: Path, *arguments: str, stdin: str = "") -> str:
        """Run a program, for example helm, as the administrator. Return its output. Raises CommandError."""
        own = {"KUBECONFIG": str(self.kubeconfig), "HELM_CACHE_HOME": str(self.folder), "HELM_CONFIG_HOME": "/none"}
        command = [str(program), *arguments]
        answer = subprocess.run(command, input=stdin, env=os.environ | own, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise CommandError((answer.stderr + answer.stdout).strip())
        return answer.stdout

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as the administrator. Return its output. Raises CommandError."""
        return self.run(self.programs / "kubectl", *arguments, stdin=stdin)

    def create_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a namespace and wait for its service account, which every pod needs."""
        metadata = {"name": name, "labels": dict(labels)}
        self.kubectl("create", "-f-", stdin=json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
        self.kubectl("wait", "-n", name, "--for=create", f"--timeout={START_SECONDS:.0f}s", "serviceaccount/default")


@contextmanager
def control_plane(*, api_server: Sequence[str] = ()) -> Iterator[ControlPlane]:
    """Run a control plane with three nodes during the block. `api_server`: more flags of kube-apiserver.

    If this process is killed, the kernel kills the control plane. Raises ClusterError if a program does not start.
    """
    programs = ensure()
    folder = Path(tempfile.mkdtemp(prefix="bundlekeel-kubernetes-"))
    etcd_port, peer_port, port = free_ports(3)
    kubernetes = ControlPlane(f"https://{HOST}:{port}", folder, programs)
    etcd = f"http://{HOST}:{etcd_port}"
    _write_files(kubernetes)
    with ExitStack() as stack:
        spawner = Spawner()
        logs = folder / "logs"
        logs.mkdir()
        spawner.start_janitor(folder, logs, [])
        stack.callback(spawner.close, clean=True)

        def start(name: str, *arguments: str) -> Child:
            child = Child(name, [str(programs / name), *arguments], logs / f"{name}.log", folder)
            spawner.start(child)
            stack.callback(_stop, child)
            return child

        start("etcd", *_etcd(etcd, f"http://{HOST}:{peer_port}"))
        # Processes stop in reverse order: an API server without etcd does not end.
        server = start("kube-apiserver", *_api_server(folder, etcd, port), *api_server)
        _until_ready(kubernetes, server)
        client = ("--kubeconfig", str(kubernetes.kubeconfig))
        alone = ("--leader-elect=false", "--secure-port=0")
        keys = ("--root-ca-file", str(kubernetes.ca), "--service-account-private-key-file", "server.key")
        # kwok sends no heartbeats. Without them nodes, and for ever their pods, are not ready after 50 seconds.
        start("kube-controller-manager", *client, *alone, *keys, "--node-monitor-grace-period=24h")
        start("kube-scheduler", *client, *alone)
        rules = [f"--config={file}" for file in (HERE / "kwok.yaml", *sorted((programs / "stages").iterdir()))]
        start("kwok", *client, "--manage-all-nodes=true", *rules)
        kubernetes.kubectl("create", "-f", str(HERE / "nodes.yaml"))
        kubernetes.kubectl("wait", "nodes", "--all", "--for=condition=Ready", f"--timeout={START_SECONDS:.0f}s")
        yield kubernetes


def _write_files(kubernetes: ControlPlane) -> None:
    """Write certificate, key, the administrator's token and kubeconfig."""
    folder, token = kubernetes.folder, secrets.token_hex(16)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(kubernetes.ca)
    certificate = authority.issue_cert(HOST, "localhost", "kubernetes.default.svc")
    certificate.private_key_pem.write_to_path(folder / "server.key")
    certificate.cert_chain_pems[0].write_to_path(folder / "server.crt")
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    name = "bundlekeel"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": kubernetes.url, "certificate-authority": "ca.crt"}}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "admin"}}],
        "current-context": name,
    }
    kubernetes.kubeconfig.write_text(yaml.safe_dump(config))


def _etcd(client: str, peer: str) -> list[str]:
    return [
        *("--data-dir=data", "--unsafe-no-fsync"),
        *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
        *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"),
    ]


def _api_server(folder: Path, etcd: str, port: int) -> list[str]:
    return [
        f"--etcd-servers={etcd}",
        *(f"--bind-address={HOST}", f"--advertise-address={HOST}", f"--secure-port={port}"),
        *("--tls-cert-file=server.crt", "--tls-private-key-file=server.key"),
        "--service-account-issuer=https://kubernetes.default.svc",
        *("--service-account-key-file=server.key", "--service-account-signing-key-file=server.key"),
        *("--token-auth-file=tokens.csv", "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/16"),
        f"--cert-dir={folder}",
    ]


def _until_ready(kubernetes: ControlPlane, server: Child) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with suppress(CommandError):
            if kubernetes.kubectl("get", "--raw", "/readyz") == "ok":
                return
        if not server.alive:
            raise server.failure("ended at its start")
        time.sleep(0.2)
    raise server.failure(f"is not ready after {START_SECONDS:.0f} s")


def _stop(child: Child) -> None:
    child.ask_to_stop()
    child.wait_or_kill(STOP_SECONDS)
