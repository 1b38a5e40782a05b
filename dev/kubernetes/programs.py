"""The programs of the control plane, built once from their Go modules into the cache.

`modules/NAME/go.mod` pins the release and every dependency of it, `go.sum` their hashes. A first build takes about ten
minutes on two cores; later calls cost nothing.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
from pathlib import Path

from dev.cache import cache_dir, locked
from dev.gotools import ToolError, run_go
from dev.wheels import progress

MODULES = Path(__file__).parent / "modules"
# Go names a program after its package; etcd's is in `server`.
_RENAMED = {"server": "etcd"}


def version(module: str, package: str) -> str:
    """Return the pinned release of a package in one of our modules."""
    text = (MODULES / module / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"^\s*{re.escape(package)} (v\S+)", text, re.MULTILINE)
    assert found, package
    return found[1]


KUBERNETES = version("kubernetes", "k8s.io/kubernetes")


def cached() -> Path:
    """Return the directory of the built programs. Raises ToolError if they are not built."""
    folder = _folder()
    if not folder.is_dir():
        raise ToolError("Kubernetes is not built yet: run `make kubernetes` once (about 10 minutes)")
    return folder


def ensure() -> Path:
    """Return the directory of the programs, with kwok's rules for pods and nodes in `stages`; build them if necessary.

    Raises ToolError if Go is missing or the build fails. An incomplete build never has the final name.
    """
    folder = _folder()
    if not folder.is_dir():
        with locked(folder.with_name(f"{folder.name}.lock")):
            if not folder.is_dir():
                scratch = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
                try:
                    for module in ("etcd", "kwok", "kubernetes"):
                        _build(module, scratch)
                    scratch.rename(folder)
                finally:
                    shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _folder() -> Path:
    pins = [path.read_text(encoding="utf-8") for path in sorted(MODULES.glob("*/go.*"))]
    mark = hashlib.sha256("".join([*pins, *_flags()]).encode()).hexdigest()[:8]
    return cache_dir() / "tools" / f"kubernetes-{KUBERNETES}-{mark}"


def _flags() -> list[str]:
    # Without these the programs report the version v0.0.0-master, and Helm refuses charts.
    major, minor = KUBERNETES.removeprefix("v").split(".")[:2]
    at = "-X k8s.io/component-base/version.git"
    return ["-trimpath", f"-ldflags=-s -w {at}Version={KUBERNETES} {at}Major={major} {at}Minor={minor}"]


def _build(module: str, target: Path) -> None:
    """Build all tools of one module. Its files are copied first, because Go must not change the pinned ones."""
    print(f"setup: {module}: downloading modules, once …", file=sys.stderr, flush=True)
    source = target / f"{module}.module"
    shutil.copytree(MODULES / module, source)
    packages = run_go(module, source, "list", "-deps", "tool").count("\n")
    with progress(f"building {module}, package", packages) as at:
        run_go(module, source, "build", "-v", *_flags(), "-o", f"{target}/", "tool", on_line=at)
        at("built", done=True)
    if module == "kwok":
        kwok = Path(run_go(module, source, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok").strip())
        (target / "stages").mkdir()
        for kind in ("node", "pod"):
            for file in (kwok / "kustomize" / "stage" / kind / "fast").glob(f"{kind}-*.yaml"):
                (target / "stages" / file.name).write_bytes(file.read_bytes())
    for name, renamed in _RENAMED.items():
        if (target / name).is_file():
            (target / name).rename(target / renamed)
    shutil.rmtree(source)
