"""Run the command of a container of the chart as a plain process, as confined as its pod says.

It gets a root of its own with the files of its volumes, its environment, its user and groups, no capability and a
network of its own. What is not like a pod: no image (Python and the sources of this checkout stand for it), no limits
of memory and size, no seccomp profile, no token of the API server.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import trustme

from dev.chart import ROOT
from tests.support.chart import Object, Pod

# Arguments: root, user, group, further groups, then MODE SOURCE TARGET of each mount, `--`, the command.
_CONFINE = """
set -eu
root=$1 user=$2 group=$3 groups=$4
shift 4
mount --bind "$root" "$root"
cd "$root"
while [ "$1" != -- ]; do
  mount --bind "$2" ".$3"
  [ "$1" = rw ] || mount -o remount,bind,ro ".$3"
  shift 3
done
shift
mount -t proc proc ./proc
mount --rbind /dev ./dev
mount -o remount,bind,ro .
ip link set lo up
exec chroot . setpriv --reuid="$user" --regid="$group" --groups="$groups" --no-new-privs --bounding-set=-all \
  --inh-caps=-all sh -c 'cd /var/lib/bundlekeel; exec "$@"' sh "$@"
"""
_OWN = ("--mount", "--propagation", "private", "--net", "--pid", "--fork", "--kill-child")
# Of this machine; Java's configuration is in /etc.
_SYSTEM = ("usr", "bin", "sbin", "lib", "lib64", "etc/ssl", "etc/alternatives", "etc/java-17-openjdk")
# Instead of the programs of the two images.
_PROGRAMS = {
    "bundlekeel": "bundlekeel",
    "bundlekeel-recalibrate": "bundlekeel.recalibration.jobs",
}


@functools.cache
def _secret() -> Mapping[str, bytes]:
    """Return a value for each key of a secret that the chart mounts."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "*.pulsar-broker.pulsar.svc")
    command = [sys.executable, "-m", "bundlekeel", "token", "new", "ann", "--role", "operator", "-o", "json"]
    token = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return {
        "TOKEN": b"eyJhbGciOiJIUzI1NiJ9.e30.x",
        "password": b"hunter2",
        "tokens": token["line"].encode(),
        "peer": token["token"].encode(),
        "operator": token["token"].encode(),
        "ca.crt": authority.cert_pem.bytes(),
        "tls.crt": certificate.cert_chain_pems[0].bytes(),
        "tls.key": certificate.private_key_pem.bytes(),
    }


@dataclass(frozen=True, slots=True)
class Place:
    """The root and the volumes of one container of a pod, in a directory."""

    folder: Path
    pod: Pod
    container: Object

    @classmethod
    def create(cls, folder: Path, pod: Pod, container: Object, config_maps: Mapping[str, Object]) -> Place:
        """Write the root and the volumes. `config_maps`: the data of the release's ConfigMaps by name."""
        place = cls(folder, pod, container)
        for name in ("proc", "dev", "opt/bundlekeel", "var/lib/bundlekeel", "run", "etc", "tmp"):
            (folder / "root" / name).mkdir(parents=True)
        folder.chmod(0o755)
        (folder / "root" / "etc" / "passwd").write_text(f"bundlekeel:x:{place.user}:{place.group}::/:/bin/sh\n")
        (folder / "root" / "etc" / "hosts").write_text("127.0.0.1 localhost pulsar-zookeeper pulsar-cs-zookeeper\n")
        shutil.copy(ROOT / "deploy" / "image" / "healthcheck.py", folder / "root" / "opt" / "bundlekeel")
        shutil.copy(ROOT / "deploy" / "image" / "spark-entrypoint.sh", folder / "root" / "opt" / "entrypoint.sh")
        programs = folder / "root" / "opt" / "bin"
        programs.mkdir()
        for name, module in _PROGRAMS.items():
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
            (programs / name).chmod(0o755)
        for volume in pod.spec["volumes"]:
            place._write(volume, config_maps)
        for _, _, target in place._mounts():
            (folder / "root" / target.lstrip("/")).mkdir(parents=True, exist_ok=True)
        return place

    @property
    def _context(self) -> Object:
        return {**self.pod.spec.get("securityContext", {}), **self.container["securityContext"]}

    @property
    def user(self) -> int:
        """The user of the process."""
        return int(self._context["runAsUser"])

    @property
    def group(self) -> int:
        """The group of the process; without one it is root's, as in Kubernetes."""
        return int(self._context.get("runAsGroup", 0))

    @property
    def _volume_group(self) -> int:
        return int(self._context.get("fsGroup", 0))

    def _write(self, volume: Object, config_maps: Mapping[str, Object]) -> None:
        """Write the files of a volume with the owner and the mode that the kubelet gives them."""
        folder = self.folder / "volumes" / volume["name"]
        folder.mkdir(parents=True)
        os.chown(folder, 0, self._volume_group)
        folder.chmod(0o2777)
        mode = {"defaultMode": 0o644, **volume.get("projected", {}), **volume.get("secret", {})}["defaultMode"]
        for source in volume.get("projected", {}).get("sources", [volume]):
            about: Object = source.get("secret") or source.get("configMap") or {}
            files: dict[str, bytes] = {}
            if "secret" in source:
                files = dict(_secret())
            elif "configMap" in source:
                files = {key: text.encode() for key, text in config_maps.get(about["name"], {}).items()}
            items = [(item["key"], item["path"]) for item in about.get("items", [])]
            for key, path in items or [(key, key) for key in files]:
                (folder / path).write_bytes(files[key])
                os.chown(folder / path, 0, self._volume_group)
                (folder / path).chmod(mode)

    def _mounts(self) -> list[tuple[str, Path, str]]:
        own = {sys.base_prefix, sys.prefix, str(ROOT / "service")}
        system = {f"/{name}" for name in _SYSTEM} | own
        mounts = [("ro", Path(name).resolve(), name) for name in sorted(system) if Path(name).is_dir()]
        for mount in self.container["volumeMounts"]:
            mode = "ro" if mount.get("readOnly") else "rw"
            mounts.append((mode, self.folder / "volumes" / mount["name"], mount["mountPath"]))
        return mounts

    def environment(self) -> dict[str, str]:
        """Return the environment of the image and of the container, as Kubernetes resolves it."""
        own = {
            "PATH": f"/opt/bin:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": str(ROOT / "service"),
        }
        image = {"PYTHONDONTWRITEBYTECODE": "1", "BUNDLEKEEL_CONFIG": "/etc/bundlekeel/settings.yaml"}
        image |= {"MPLCONFIGDIR": "/tmp/matplotlib", "PYSPARK_PYTHON": sys.executable, "HOME": "/var/lib/bundlekeel"}
        fields = {"status.podIP": "127.0.0.1", "metadata.name": "keel-0"}
        container: dict[str, str] = {}
        for item in self.container.get("env", []):
            text = fields[item["valueFrom"]["fieldRef"]["fieldPath"]] if "valueFrom" in item else item["value"]
            container[item["name"]] = _resolve(text, container)
        return own | image | container

    def command(self) -> list[str]:
        """Return the command of the container: of the image's entry point and the arguments."""
        arguments = [_resolve(text, self.environment()) for text in self.container["args"]]
        spark = self.container["name"] == "recalibrate"
        return [*(["sh", "/opt/entrypoint.sh"] if spark else ["bundlekeel"]), *arguments]

    def run(self, command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
        """Run a command in the container. Return its exit code and output. After `seconds` it is killed."""
        mounts = [str(part) for mount in self._mounts() for part in mount]
        groups = str(self._context.get("fsGroup", 0))
        users = [str(self.folder / "root"), str(self.user), str(self.group), groups]
        return subprocess.run(
            ["unshare", *_OWN, "sh", "-c", _CONFINE, "confine", *users, *mounts, "--", *command],
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )


def _resolve(text: str, environment: Mapping[str, str]) -> str:
    """Replace each `$(NAME)` of a known variable, as Kubernetes does."""
    return re.sub(r"\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), text)
