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
    go = program("go", "go")
    if go is None:
        raise ToolError(f"`{tool.name}` is built with Go, which is neither on the PATH nor to be had as a wheel")
    print(f"tools: building {tool.name} {tool.version}, once …", file=sys.stderr, flush=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        (scratch / "go.mod").write_text(go_module)
        _go(tool, scratch, [str(go), "get", "-tool", f"{tool.package}@{tool.version}"])
        _go(tool, scratch, [str(go), "build", "-trimpath", "-ldflags=-s -w", "-o", "built", tool.package])
        (scratch / "built").rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _go(tool: GoTool, module: Path, command: list[str]) -> None:
    # Use the installed Go and do not download another one. No C compiler is needed.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off"}
    answer = subprocess.run(
        command, cwd=module, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if answer.returncode != 0:
        tail = answer.stderr.strip().splitlines()[-6:]
        raise ToolError(f"Go could not build {tool.name} {tool.version}:\n  " + "\n  ".join(tail))


def main(names: list[str]) -> None:
    """Build the programs with these names, or all if `names` is empty, and print their paths."""
    for tool in ALL:
        if not names or tool.name in names:
            print(f"{tool.name} {tool.version}: {ensure(tool)}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ToolError as error:
        sys.exit(f"tools: {error}")
