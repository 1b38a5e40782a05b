"""A Docker engine's API on loopback, as far as the local cluster uses it: its containers are plain processes.

What it is asked for is recorded. There is no isolation: networks are those of this machine, and files too.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.http_server import serving

API = "1.43"


class FakeEngine:
    """Starts with no image and no container; a context manager."""

    def __init__(self, programs: Mapping[str, str] | None = None) -> None:
        """`programs`: words of a container's command, and what stands for them on this machine."""
        self.pulled: list[str] = []
        # What each container was created with, by id, in order.
        self.created: dict[str, dict[str, Any]] = {}
        self.removed: list[str] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._programs = dict(programs or {})
        self._execs: dict[str, int] = {}
        engine = self

        class Handler(_Handler):
            def answer(self, method: str) -> tuple[int, Any]:
                return engine.answer(method, self.path, self.body)

        self._serving = serving(Handler)

    def __enter__(self) -> FakeEngine:
        # What DOCKER_HOST must say.
        self.address = f"tcp://127.0.0.1:{self._serving.__enter__()}"
        return self

    def __exit__(self, *error: Any) -> None:
        self._serving.__exit__(*error)
        for process in self.processes.values():
            process.kill()
            process.wait()

    def answer(self, method: str, target: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and JSON (or bytes) of one request."""
        parts = urlsplit(target)
        path = re.sub(r"^/v[\d.]+", "", parts.path)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        fixed = {"/_ping": b"OK", "/version": {"ApiVersion": API}, "/info": {"CgroupVersion": "2"}}
        if path in fixed:
            return 200, fixed[path]
        if path == "/images/create":
            self.pulled.append(f"{query['fromImage']}:{query['tag']}")
            return 200, {"status": "done"}
        if path.startswith("/images/"):
            image = path.removeprefix("/images/").removesuffix("/json")
            return (200, {"Id": "sha256:1"}) if image in self.pulled else (404, {"message": f"No such image: {image}"})
        if path == "/containers/create":
            return self._create(body)
        if path.startswith("/exec/"):
            _, _, exec_id, verb = path.split("/")
            return 200, b"" if verb == "start" else {"ExitCode": self._execs[exec_id]}
        _, _, container, *rest = path.split("/")
        if container not in self.created or container in self.removed:
            return 404, {"message": f"No such container: {container}"}
        return self._of_container(method, container, rest[0] if rest else "", query, body)

    def _create(self, body: dict[str, Any]) -> tuple[int, Any]:
        if body["Image"] not in self.pulled:
            return 404, {"message": f"No such image: {body['Image']}"}
        container = f"{len(self.created) + 1:064x}"
        self.created[container] = body
        return 201, {"Id": container, "Warnings": []}

    def _of_container(
        self, method: str, container: str, verb: str, query: Mapping[str, str], body: dict[str, Any]
    ) -> tuple[int, Any]:
        if verb == "start":
            self._start(container)
        elif verb == "kill":
            process = self.processes[container]
            if process.poll() is not None:
                return 409, {"message": f"Container {container} is not running"}
            process.send_signal(signal.Signals[query["signal"]])
        elif verb == "json":
            return 200, self._described(container)
        elif verb == "exec":
            exec_id = f"{len(self._execs) + 1}"
            self._execs[exec_id] = subprocess.run(body["Cmd"], check=False, capture_output=True).returncode
            return 201, {"Id": exec_id}
        elif method == "DELETE":
            if container in self.processes:
                self.processes[container].kill()
                self.processes[container].wait()
            self.removed.append(container)
        return 204, b""

    def _start(self, container: str) -> None:
        body = self.created[container]
        words = [*body["Entrypoint"], *body["Cmd"]]
        for pattern, meant in self._programs.items():
            words = [word.replace(pattern, meant) for word in words]
        self.processes[container] = subprocess.Popen(
            words, cwd=body.get("WorkingDir") or "/", start_new_session=True, stdin=subprocess.DEVNULL
        )

    def _described(self, container: str) -> dict[str, Any]:
        process = self.processes.get(container)
        code = process.poll() if process is not None else 0
        # As the shell and the engine count deaths by signal.
        exit_code = 128 - code if code is not None and code < 0 else code or 0
        running = process is not None and code is None
        state: dict[str, Any] = {
            "Running": running,
            "Pid": process.pid if running and process else 0,
            "ExitCode": exit_code,
        }
        state["Status"] = "running" if running else "exited"
        return {"Id": container, "Name": f"/{container[:8]}", "State": state, "Config": {"Labels": {}}}


class _Handler(BaseHTTPRequestHandler):
    body: dict[str, Any]

    def answer(self, method: str) -> tuple[int, Any]:
        raise NotImplementedError

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.body = json.loads(self.rfile.read(length) or b"{}")
        status, reply = self.answer(self.command)
        content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(reply, bytes) else "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if status != 204:
            self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _serve

    def log_message(self, *_: object) -> None:
        pass
