"""The web page: built from `ui/` and the types in config/openapi.json by esbuild.

The result is committed in the package, so that the wheel contains it. `python -m dev.ui build` writes it. `check`
builds it again and compares it with the committed files. `fresh` compares digests alone, without npm. `install` gets
the npm packages, also for the tests. `screenshots` makes the documentation's pictures: ten brokers and four tenants
over fakes, without a cluster. `serve` serves the page over the same fakes.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from dev.wheels import program

ROOT = Path(__file__).resolve().parent.parent
UI = ROOT / "ui"
TYPES = UI / "src/answers.ts"
STATIC = ROOT / "service/bundlekeel/api/static"
DIGESTS = UI / "built.sha256"
FILES = ("icon.svg", "index.html", "page.css", "page.js")
PICTURES = ROOT / "docs/pictures"
REMEDY = "run `python -m dev.ui build` and commit what it writes"
ADVICE = "install Node.js 20 or newer with npm, or let pip and npm reach their registries"
_INSTALLED = UI / "node_modules/.package-lock.json"


class BuildFailed(RuntimeError):
    """npm is missing, or the build of the sources failed; the message contains the reason."""


def sources() -> list[Path]:
    """Return the files from which the web page is built."""
    paths = [path for path in (UI / "src").rglob("*") if path.is_file()]
    return sorted([*paths, UI / "build.mjs", UI / "package.json", UI / "package-lock.json", UI / "tsconfig.json"])


def types() -> str:
    """Return the responses of config/openapi.json as TypeScript types. The page has no other definition of them."""
    schemas = json.loads((ROOT / "config/openapi.json").read_text(encoding="utf-8"))["components"]["schemas"]
    lines = ["// Made from config/openapi.json by `python -m dev.ui build`; do not edit."]
    for name, schema in schemas.items():
        if "enum" in schema or "anyOf" in schema:
            lines += ["", f"export type {name} = {_type(schema)};"]
        elif "properties" in schema and not name.endswith(("Body", "Error")):
            lines += ["", f"/** {' '.join(schema.get('description', name).split())} */", f"export interface {name} {{"]
            for field, item in schema["properties"].items():
                lines += [f"  /** {item['description']} */", f"  {field}: {_type(item)};"]
            lines.append("}")
    return "\n".join(lines) + "\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(_type(item) for item in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(item) for item in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "unknown")
    if kind == "array":
        return f"({_type(schema['items'])})[]"
    if kind == "object":
        values = schema.get("additionalProperties", True)
        return f"Record<string, {'unknown' if values is True else _type(values)}>"
    return "number" if kind == "integer" else str(kind)


def digests() -> str:
    """Return one line with the digest of all sources, and one for each generated file."""
    whole = hashlib.sha256()
    for path in sources():
        whole.update(path.relative_to(UI).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    lines = [f"{whole.hexdigest()}  sources"]
    for name in FILES:
        path = STATIC / name
        lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else 'missing'}  {name}")
    return "\n".join(lines) + "\n"


def stale(digests_file: Path = DIGESTS) -> list[str]:
    """Return one line for each file that has changed since the last build, by the digests of that build."""
    noted = digests_file.read_text(encoding="utf-8").splitlines() if digests_file.exists() else []
    changed = [line.partition("  ")[2] for line in digests().splitlines() if line not in noted]
    missing = [] if TYPES.exists() and TYPES.read_text(encoding="utf-8") == types() else ["the API's answers"]
    return [f"{name} changed since the page was built" for name in [*changed, *missing]]


def drift() -> list[str]:
    """Build again, and return one line for each committed file that differs. Raises BuildFailed if the build fails."""
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        return [
            f"{name} is not what the sources build to"
            for name in FILES
            if not (STATIC / name).exists() or (STATIC / name).read_bytes() != (Path(folder) / name).read_bytes()
        ]


def make(folder: Path) -> None:
    """Check the types and build the page into a directory. Raises BuildFailed if that fails."""
    if TYPES.read_text(encoding="utf-8") != types():
        raise BuildFailed(f"{TYPES.relative_to(ROOT)} is not what config/openapi.json says; {REMEDY}")
    install()
    _run("npx", "--no-install", "tsc", "--noEmit")
    _run("node", "build.mjs", str(folder))


def install() -> None:
    """Install the npm packages of ui/package-lock.json in ui/node_modules. Raises BuildFailed if that fails."""
    lock = UI / "package-lock.json"
    if not _INSTALLED.exists() or _INSTALLED.stat().st_mtime < lock.stat().st_mtime:
        # Without install scripts: that of esbuild downloads only files that its package contains already.
        _run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent")
        _INSTALLED.touch()


def _run(*command: str) -> None:
    executable = program(command[0], "node")
    if executable is None:
        raise BuildFailed(f"{command[0]} is missing, and not to be had as a wheel: {ADVICE}")
    # Programs that npm starts search `node` on the PATH.
    environment = os.environ | {"PATH": f"{executable.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = subprocess.run(
        [str(executable), *command[1:]], cwd=UI, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BuildFailed(f"{' '.join(command)}: {(done.stdout + done.stderr).strip()}")


def main(arguments: list[str]) -> int:
    """Run the command and return the exit code."""
    verb = arguments[0] if len(arguments) == 1 else ""
    if verb == "build":
        TYPES.write_text(types(), encoding="utf-8")
        make(STATIC)
        DIGESTS.write_text(digests(), encoding="utf-8")
        print(f"built: {', '.join(f'{name} {(STATIC / name).stat().st_size:,} bytes' for name in FILES)}")
        return 0
    if verb == "install":
        install()
        return 0
    if verb == "screenshots":
        tests = [sys.executable, "-m", "pytest", "-q", "tests/ui/test_pictures.py"]
        return subprocess.run(tests, cwd=ROOT, env=os.environ | {"UI_PICTURES": str(PICTURES)}, check=False).returncode
    if verb == "serve":
        os.chdir(ROOT)
        # Replace this process, so that a signal to it stops the server.
        os.execv(sys.executable, [sys.executable, "-m", "tests.support.page_shop"])
    if verb not in ("check", "fresh"):
        print(f"usage: python -m {__spec__.name if __spec__ else 'dev.ui'} build|check|fresh|install|screenshots|serve")
        return 2
    wrong = stale() + (drift() if verb == "check" else [])
    for line in wrong:
        print(f"{line}; {REMEDY}")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BuildFailed as error:
        sys.exit(str(error))
