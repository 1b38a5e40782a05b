"""Notifications as Kubernetes events about the sidecar's pod, which `kubectl events` shows.

The only required permission is `create` on `events` of the group `events.k8s.io` in the pod's own namespace.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from bundlekeel import __version__
from bundlekeel.model.errors import NotificationError
from bundlekeel.ports.records import Notification
from bundlekeel.pulsar.formats.external_input import utc
from bundlekeel.records.webhooks import post

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CONTROLLER: Final = "bundlekeel.io/sidecar"
# Limits of the Kubernetes API server.
_MOST_NOTE_BYTES: Final = 1024
_MOST_WORD: Final = 128
_MAX_TOKEN_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesEndpoint:
    """Address of the Kubernetes API server, and identity of this pod.

    `folder`: directory with the files token, ca.crt and namespace, which kubelet mounts and renews at run time.
    """

    url: str
    folder: Path
    namespace: str
    pod: str

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str], host_name: str, folder: Path = SERVICE_ACCOUNT
    ) -> KubernetesEndpoint | None:
        """Return this pod's endpoint; None outside of Kubernetes, or without a service account token."""
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
        try:
            namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
        if not host or not namespace or not (folder / "token").exists():
            return None
        url_host = f"[{host}]" if ":" in host else host
        pod = environ.get("POD_NAME") or host_name
        return cls(url=f"https://{url_host}:{port}", folder=folder, namespace=namespace, pod=pod)

    @property
    def ca(self) -> Path:
        """Path of the certificate of the API server's certificate authority."""
        return self.folder / "ca.crt"


class KubernetesEvents:
    """`ports.records.Notifier` that creates events at the Kubernetes API server."""

    def __init__(self, place: KubernetesEndpoint, *, seconds: float = 5.0, tls: ssl.SSLContext | None = None) -> None:
        self._place = place
        self._seconds = seconds
        self._http = httpx.AsyncClient(
            timeout=seconds,
            trust_env=False,
            verify=tls or True,
            follow_redirects=False,
            headers={"User-Agent": f"bundlekeel/{__version__}"},
        )

    async def send(self, notice: Notification) -> None:
        """Create one event. Raises NotificationError if the API server does not accept it."""
        url = f"{self._place.url}/apis/events.k8s.io/v1/namespaces/{self._place.namespace}/events"
        headers = {"Authorization": f"Bearer {self._token()}"}
        await post(self._http, url, event_of(notice, self._place), seconds=self._seconds, headers=headers)

    async def close(self) -> None:
        """Close the pooled connections to the API server."""
        await self._http.aclose()

    def _token(self) -> str:
        """Return the current service account token.

        The small local file is read for each event, because kubelet renews the token about hourly."""
        try:
            with (self._place.folder / "token").open("rb") as stream:
                token = stream.read(_MAX_TOKEN_BYTES).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NotificationError(f"the service account token: {type(error).__name__}", again=True) from None
        if not token.isprintable() or not token or " " in token:
            raise NotificationError("the service account token is unusable", again=True)
        return token


def event_of(notice: Notification, place: KubernetesEndpoint) -> dict[str, Any]:
    """Return a notification as the body of a Kubernetes event about this pod."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": "bundlekeel-", "namespace": place.namespace},
        "eventTime": utc(notice.wall_ms, field="wall_ms").strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": CONTROLLER,
        "reportingInstance": notice.member[:_MOST_WORD],
        "action": notice.event[:_MOST_WORD],
        "reason": notice.reason[:_MOST_WORD],
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": place.namespace, "name": place.pod},
        "note": _cut(f"{notice.cluster}: {notice.text}"),
        "type": "Normal" if notice.severity == "info" else "Warning",
    }


def _cut(text: str) -> str:
    data = text.encode()
    if len(data) <= _MOST_NOTE_BYTES:
        return text
    return data[: _MOST_NOTE_BYTES - 3].decode(errors="ignore") + "..."
