"""Programs of other projects that the chart and compose tests run, built once from their Go modules into the cache.

PyPI does not have the required versions. Each program is built in its own Go module, so that it gets exactly the
dependencies of its release; Go's checksum database verifies the downloads. A first build of `helm` takes about four
minutes of processor time, the others one or two. `python -m dev.gotools` builds all programs, `python -m dev.gotools
helm` one of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dev.cache import cache_dir, locked
from dev.wheels import program


class ToolError(RuntimeError):
    """A program is not available. The message is one sentence with its name and what to do."""


@dataclass(frozen=True, slots=True)
class GoTool:
    """A Go program: its name, main package, release, and `replace` line.

    Go ignores the `replace` lines of a module that another module uses, so the line is repeated here.
    """

    name: str
    package: str
    version: str
    replace: str = ""


HELM = GoTool("helm", "helm.sh/helm/v3/cmd/helm", "v3.22.0")
KUBECONFORM = GoTool("kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform", "v0.8.0")
HELM_UNITTEST = GoTool(
    "helm-unittest",
    "github.com/helm-unittest/helm-unittest/cmd/helm-unittest",
    "v1.1.2",
    "github.com/vmware-labs/yaml-jsonpath v0.3.2 => github.com/helm-unittest/yaml-jsonpath v0.4.0",
)
COMPOSE = GoTool("docker-compose", "github.com/docker/compose/v5/cmd", "v5.2.0")
ACTIONLINT = GoTool("actionlint", "github.com/rhysd/actionlint/cmd/actionlint", "v1.7.12")
ADVICE = "helm and others are built with Go: install Go 1.26 or newer, or let pip and Go reach their registries"
ALL = (HELM, KUBECONFORM, HELM_UNITTEST, COMPOSE, ACTIONLINT)


def ensure(tool: GoTool) -> Path:
    """Return the path of the built program. The first call builds it. Several processes may call this at the same time.

    Raises ToolError if Go is missing or the build fails. An incomplete build never has the final name.
    """
    go_module = _go_module(tool)
    mark = hashlib.sha256(f"{tool.package} {go_module}".encode()).hexdigest()[:8]
    target = cache_dir() / "tools" / f"{tool.name}-{tool.version}-{mark}"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.with_name(f"{target.name}.lock")):
            if not target.is_file():
                _build(tool, go_module, target)
    return target


def _go_module(tool: GoTool) -> str:
    lines = ["module bundlekeel.invalid/tools", *([f"replace {tool.replace}"] if tool.replace else [])]
    return "\n".join(lines) + "\n"


def _build(tool: GoTool, go_module: str, target: Path) -> None:
    print(f"tools: building {tool.name} {tool.version}, once …", file=sys.stderr, flush=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        (scratch / "go.mod").write_text(go_module)
        run_go(tool.name, scratch, "get", "-tool", f"{tool.package}@{tool.version}")
        run_go(tool.name, scratch, "build", "-trimpath", "-ldflags=-s -w", "-o", "built", tool.package)
        (scratch / "built").rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def run_go(name: str, module: Path, *arguments: str, on_line: Callable[[str], None] | None = None) -> str:
    """Run a command of Go in the directory of a module for the program `name`. Return its standard output.

    `on_line` gets each line that Go writes to standard error. Raises ToolError if Go is missing or fails.
    """
    go = program("go", "go")
    if go is None:
        raise ToolError(f"`{name}` is built with Go, which is neither on the PATH nor to be had as a wheel")
    # Use the installed Go and do not download another one. No C compiler is needed.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off"}
    lines: deque[str] = deque(maxlen=6)
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            [str(go), *arguments],
            cwd=module,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line.strip())
            if on_line:
                on_line(line.strip())
        if process.wait() != 0:
            raise ToolError(f"Go could not build {name}:\n  " + "\n  ".join(lines))
        output.seek(0)
        return output.read()


def main(names: list[str]) -> None:
    """Build the programs with these names, or all if `names` is empty, and print their paths.

    Raises ToolError if a name is unknown or a build fails.
    """
    tools = {tool.name: tool for tool in ALL}
    for name in names or tools:
        if name not in tools:
            raise ToolError(f"no program is called {name!r}; known: {', '.join(tools)}")
        print(f"{name} {tools[name].version}: {ensure(tools[name])}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ToolError as error:
        sys.exit(f"tools: {error}")
