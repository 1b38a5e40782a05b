"""The admin requests that traffic needs: create a namespace, read its bundles, choose their owner."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterable, Sequence
from functools import partial
from urllib.parse import quote, urljoin, urlsplit

from dev.identity import Identity
from dev.traffic.bundles import bundle_of

# Not "bundlekeel", because the recorder finds the sidecars' requests by that User-Agent.
USER_AGENT = "traffic-generator/1"
MAX_HOPS = 5
# Longer than a broker's own time limit for an unload, which is 60 s.
TIMEOUT_SECONDS = 90.0
PLACE_ATTEMPTS = 8


class AdminError(RuntimeError):
    """A broker refused an admin call or could not be reached; the message names the call."""


def request(method: str, url: str, body: object | None = None, identity: Identity | None = None) -> tuple[int, bytes]:
    """Send one request and follow its redirects, with credentials if the cluster is secured; return status and body.
    Raises AdminError if a broker cannot be reached or redirects too often.
    """
    headers = {"User-Agent": USER_AGENT, "Accept": "application/json"}
    data = None if body is None else json.dumps(body)
    if data is not None:
        headers["Content-Type"] = "application/json"
    if identity is not None:
        headers |= identity.headers
    for _ in range(MAX_HOPS):
        parts = urlsplit(url)
        connection = _connection(parts.netloc, identity)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        try:
            connection.request(method, target, data, headers)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise AdminError(f"{method} {url}: {error!r}") from error
        finally:
            connection.close()
        location = response.getheader("Location")
        if response.status not in (301, 302, 307, 308) or location is None:
            return response.status, answer
        url = urljoin(url, location)
    raise AdminError(f"{method} {url}: more than {MAX_HOPS} redirects")


def _connection(netloc: str, identity: Identity | None) -> http.client.HTTPConnection:
    if identity is None:
        return http.client.HTTPConnection(netloc, timeout=TIMEOUT_SECONDS)
    return http.client.HTTPSConnection(netloc, timeout=TIMEOUT_SECONDS, context=identity.tls)


def _call(
    method: str, url: str, body: object | None = None, also: Sequence[int] = (), identity: Identity | None = None
) -> bytes:
    """Send a request and return the response. Raises AdminError for an error status that is not in ``also``."""
    status, answer = request(method, url, body, identity)
    if status == 500 and b"BadVersion" in answer:  # another client created it at the same time
        status, answer = request(method, url, body, identity)
    if not 200 <= status < 300 and status not in also:
        # Brokers put whole stack traces into the reason; its first line is what matters.
        raise AdminError(f"{method} {url}: {status} {answer.decode(errors='replace')[:300]}")
    return answer


def ensure_namespace(admin_url: str, namespace: str, bundles: int, identity: Identity | None = None) -> list[int]:
    """Create tenant and namespace when missing; return the namespace's bundle boundaries.

    Raises AdminError when a broker refuses.
    """
    base = admin_url.rstrip("/") + "/admin/v2"
    tenant = namespace.partition("/")[0]
    call = partial(_call, identity=identity)
    clusters = [name for name in json.loads(call("GET", f"{base}/clusters")) if name != "global"]
    call("PUT", f"{base}/tenants/{tenant}", {"adminRoles": [], "allowedClusters": clusters}, also=[409])
    call("PUT", f"{base}/namespaces/{namespace}", {"bundles": {"numBundles": bundles}}, also=[409])
    document = json.loads(call("GET", f"{base}/namespaces/{namespace}/bundles"))
    return [int(text, 16) for text in document["boundaries"]]


def place_all_on(broker_id: str, web_url: str, topics: Iterable[str], identity: Identity | None = None) -> None:
    """Make one broker the owner of the bundles of all these topics, whoever owns them now.

    ``broker_id``: advertised "host:port" of the new owner. ``web_url``: URL of any broker. Clients of bundles that move
    are cut off for a moment. Raises AdminError if a bundle does not move.
    """
    base = web_url.rstrip("/")
    boundaries: dict[str, list[int]] = {}
    done: set[str] = set()
    call = partial(_call, identity=identity)
    settings = json.loads(call("GET", f"{base}/admin/v2/brokers/configuration/runtime"))
    extensible = "Extensible" in settings.get("loadManagerClassName", "")
    for topic in topics:
        namespace = topic.partition("://")[2].rpartition("/")[0]
        if namespace not in boundaries:
            document = json.loads(call("GET", f"{base}/admin/v2/namespaces/{namespace}/bundles"))
            boundaries[namespace] = [int(text, 16) for text in document["boundaries"]]
        bundle = bundle_of(topic, boundaries[namespace])
        if bundle not in done:
            _place(broker_id, topic, bundle, extensible, identity)
            done.add(bundle)


def _place(broker_id: str, topic: str, bundle: str, extensible: bool, identity: Identity | None) -> None:
    """Repeat lookups at the new owner, and unloads from other owners, until a lookup returns the new owner."""
    domain, _, path = topic.partition("://")
    namespace, _, name = path.rpartition("/")
    wished = f"{'http' if identity is None else 'https'}://{broker_id}"
    lookup = f"{wished}/lookup/v2/topic/{domain}/{namespace}/{quote(name, safe='')}"
    unload = f"{wished}/admin/v2/namespaces/{bundle}/unload"
    # Modular: after an authoritative lookup a broker takes an unowned bundle without its leader. The unload has a
    # destination, so that an earlier lookup by a client does not assign another broker. Extensible: the unload itself
    # transfers the bundle.
    query = "" if extensible else "?authoritative=true"
    for attempt in range(PLACE_ATTEMPTS):
        status, answer = request("GET", lookup + query, identity=identity)
        if status == 200 and _owner(answer) == broker_id:
            return
        # Before the unload, because after it a client's lookup could assign the bundle to another broker first.
        time.sleep(0.2 * attempt)
        if status == 200:
            request("PUT", f"{unload}?destinationBroker={quote(broker_id, safe='')}", identity=identity)
    raise AdminError(f"{bundle} does not go to {broker_id}: last lookup said {status} {answer[:200]!r}")


def _owner(lookup_answer: bytes) -> str:
    address = json.loads(lookup_answer)
    return urlsplit(address.get("httpUrl") or address.get("httpUrlTls") or "").netloc
