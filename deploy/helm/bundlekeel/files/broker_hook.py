"""Runs in the broker's container: empty the broker before it stops, and let it take bundles again when it is back.

    broker_hook.py drain      from the container's preStop
    broker_hook.py back       in the background of the container's start

It asks the sidecar of the same pod through its unix socket. One that has no seat passes it to the leader's port when
a token is given (BUNDLEKEEL_TOKEN_FILE); without one the broker stops as it would have without us. Nothing here makes
a broker fail: whatever goes wrong is printed, and the exit code is 0. Standard library only, Python 3.8 or newer.
"""

import http.client
import json
import os
import socket
import ssl
import sys
import time
from urllib.parse import quote, urlsplit

# Only drains with this reason are ended at the start: what a person asked for stays.
REASON = "the broker's container stops (preStop)"
BY = "broker hook"
SECONDS = 20.0
# What blocks the moves may end in the next cycle, such as a high reading: it counts once it has lasted this long.
HELD_SECONDS = float(os.environ.get("BUNDLEKEEL_HELD_SECONDS", "20"))


class Refused(Exception):
    """The API said no: its status and its words."""

    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status = status


class UnixConnection(http.client.HTTPConnection):
    """HTTP over the sidecar's socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self):
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self._path)


def ask(method, path, body=None):
    """Ask the sidecar here; on 503 (no seat, no picture yet) the leader, if there is a token for it."""
    here = os.environ.get("BUNDLEKEEL_SOCKET", "/run/bundlekeel/bundlekeel.sock")
    token_file = os.environ.get("BUNDLEKEEL_TOKEN_FILE")
    try:
        return send(UnixConnection(here), method, path, body, {})
    except Refused as error:
        if error.status != 503 or not token_file:
            raise
    leader = send(UnixConnection(here), "GET", "state", None, {})["leader"]
    if not leader or not leader.get("url"):
        raise Refused(503, "no sidecar leads")
    with open(token_file, encoding="utf-8") as stream:
        headers = {"Authorization": "Bearer " + stream.read().strip()}
    return send(remote(leader["url"]), method, path, body, headers)


def remote(url):
    """Return a connection to the leader's port. With TLS on it is never unencrypted, because it carries the token."""
    parts = urlsplit(url)
    if parts.scheme != "https" and os.environ.get("BUNDLEKEEL_TLS_CA"):
        raise Refused(503, f"the leader's address {url} is not encrypted, and BUNDLEKEEL_TLS_CA is set")
    if parts.scheme == "https":
        trusted = ssl.create_default_context(cafile=os.environ.get("BUNDLEKEEL_TLS_CA"))
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=SECONDS, context=trusted)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=SECONDS)


def send(connection, method, path, body, headers):
    """Send one request below /api/v1 and return the decoded response. Raises Refused if the status is an error."""
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, "/api/v1/" + path, text, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        reply = json.loads(answer.read() or b"null")
    finally:
        connection.close()
    if answer.status >= 300:
        raise Refused(answer.status, (reply or {}).get("detail", "") if isinstance(reply, dict) else reply)
    return reply


def named():
    """This broker's id: the one that begins with the pod's name, and is registered or being drained."""
    if os.environ.get("BUNDLEKEEL_BROKER"):
        return os.environ["BUNDLEKEEL_BROKER"]
    pod = (os.environ.get("HOSTNAME") or socket.gethostname()).split(".")[0]
    brokers = {item["broker"] for item in ask("GET", "brokers") + ask("GET", "operations")["drains"]}
    matches = [broker for broker in brokers if broker.split(":")[0].split(".")[0] == pod]
    if len(matches) == 1:
        return matches[0]
    # A sidecar without a seat knows no brokers. Pulsar uses the same name unless another one is configured.
    return f"{socket.getfqdn()}:{os.environ.get('BUNDLEKEEL_BROKER_PORT', '8080')}"


def drain(until):
    """Request the drain and wait until the broker is empty, or only bundles remain that must stay."""
    broker = named()
    if ours(broker) is None:
        ask("POST", f"brokers/{quote(broker, safe='')}/drain", {"execute": True, "reason": REASON, "by": BY})
    free = time.monotonic()
    while True:
        # Looked at once at least, however long the asking took.
        operations = ask("GET", "operations")
        row = of(broker, operations)
        if row is None:
            return "the drain was ended by somebody"
        # None before the first cycle, and while the broker does not list its bundles.
        left = "an unknown number of bundles" if row["left"] is None else row["left"]
        held, blocked = operations.get("held"), row["state"] == "blocked"
        free = free if held or blocked else time.monotonic()
        lasts = time.monotonic() > free + HELD_SECONDS
        if row["state"] == "empty" or (blocked and lasts):
            return f"{broker} {row['state']}, {left} left, {row['moved']} moved"
        if lasts:
            return f"nothing is moved now ({held}: {operations['held_explanation']}), {left} left"
        seconds = until - time.monotonic()
        if seconds <= 0:
            return f"out of time, {left} left"
        time.sleep(min(1.0, seconds))


def back(until):
    """End the drain that `drain` asked for, and have the broker filled gently."""
    while time.monotonic() < until:
        try:
            broker = named()
            row = ours(broker)
            if row is None or row["reason"] != REASON:
                return "nothing of ours to end"
            path = f"brokers/{quote(broker, safe='')}"
            ask("POST", f"{path}/uncordon", {"reason": "the broker is back", "by": BY})
            break
        except (OSError, http.client.HTTPException, Refused) as error:
            say(f"not yet: {error}")
            time.sleep(5.0)
    while os.environ.get("BUNDLEKEEL_WARM") == "true" and time.monotonic() < until:
        try:
            ask("POST", f"{path}/warm", {"execute": True, "reason": "the broker is back", "by": BY})
            return "warming"
        except (OSError, http.client.HTTPException, Refused) as error:
            # 404 until the broker has registered.
            say(f"not warmed yet: {error}")
            time.sleep(5.0)
    return "takes bundles again"


def ours(broker):
    """The drain of this broker, if there is one."""
    return of(broker, ask("GET", "operations"))


def of(broker, operations):
    """Return the drain of this broker among the operators' requests."""
    return next((item for item in operations["drains"] if item["broker"] == broker), None)


def say(text):
    """Write to the log of the container, also from a preStop hook, whose own output is lost."""
    line = f"bundlekeel: {text}\n"
    sys.stderr.write(line)
    if os.environ.get("BUNDLEKEEL_LOG"):
        try:
            with open(os.environ["BUNDLEKEEL_LOG"], "w", encoding="utf-8") as log:
                log.write(line)
        except OSError:
            sys.stderr.write("bundlekeel: the container's log cannot be written\n")


def main():
    """Do it; never fail."""
    within = float(os.environ.get("BUNDLEKEEL_WITHIN", "600"))
    action = {"drain": drain, "back": back}[sys.argv[1]]
    try:
        say(f"{sys.argv[1]}: {action(time.monotonic() + within)}")
    except Exception as error:
        say(f"{sys.argv[1]} given up: {error}")


if __name__ == "__main__":
    main()
