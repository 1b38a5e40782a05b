"""Generate parts of the Helm chart: `python -m dev.chart write|check`.

README.md comes from Chart.yaml and the `# --` comments of values.yaml. values-apache-chart.yaml (values for the chart
of Apache Pulsar) comes from our rendered chart. `files/` comes from deploy/prometheus and deploy/dashboards (Helm reads
nothing outside a chart). `settings` in values.schema.json comes from the settings of the sidecar. `check` writes
nothing and names every file that differs.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from bundlekeel.model.parameters import BY_NAME, BY_PULSAR_KEY
from bundlekeel.settings.parameters import OR_DURATION, TOP_LEVEL
from bundlekeel.settings.schema import PATTERN, parameter_allowed, rows
from dev.gotools import HELM, ensure
from dev.markdown import fill, table

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "bundlekeel"
# Helm built from its module has no Kubernetes version of its own. This is the newest version that our schemas describe.
KUBERNETES = "1.37.0"
NAMESPACE = "pulsar"
# The types of volumes that Pod Security `restricted` allows in a pod, and so templates/_checks.tpl in a broker's pod.
VOLUMES = ("name", "configMap", "csi", "downwardAPI", "emptyDir", "persistentVolumeClaim", "projected", "secret")
_NOTE = "Made by `python -m dev.chart write`; do not edit."

_TYPES = {bool: "bool", dict: "object", float: "float", int: "int", list: "list", str: "string"}


def render(release: str, values: Path, *arguments: str, chart: Path = CHART) -> list[dict[str, Any]]:
    """Return the objects that `helm template` renders for one file of values. Raises RuntimeError with Helm's message
    if Helm refuses the values.
    """
    command = [str(ensure(HELM)), "template", release, str(chart), "--namespace", NAMESPACE]
    command += ["--kube-version", KUBERNETES, "-f", str(values), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise RuntimeError(answer.stderr)
    return [document for document in yaml.safe_load_all(answer.stdout) if document]


def readme() -> str:
    """Return the README in the format of helm-docs: the data of Chart.yaml, the introduction, and the values in the
    order of values.yaml.
    """
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    rows = [(key, _TYPES[type(default)], f"`{_flow(default)}`", text) for key, default, text in _values()]
    values = "\n".join(table(("Key", "Type", "Default", "Description"), rows))
    return fill("chart.md", chart=chart, note=_NOTE, values=values)


def _flow(default: object) -> str:
    text: str = yaml.safe_dump(default, default_flow_style=True, width=10**6)
    return text.strip().removesuffix("...").strip()


def _values() -> list[tuple[str, Any, str]]:
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    tree = yaml.compose(text)
    assert isinstance(tree, yaml.MappingNode)
    return _rows(tree, "", text.splitlines())


def _rows(node: yaml.MappingNode, above: str, lines: list[str]) -> list[tuple[str, Any, str]]:
    """Return (dotted key, default, comment) for each key with a `# --` line above it, also for nested keys."""
    rows = []
    for key, value in node.value:
        name = f"{above}{key.value}"
        comment = lines[key.start_mark.line - 1].strip() if key.start_mark.line else ""
        if comment.startswith("# -- "):
            rows.append((name, yaml.safe_load(yaml.serialize(value)), comment.removeprefix("# -- ")))
        elif isinstance(value, yaml.MappingNode) and value.value:
            rows += _rows(value, f"{name}.", lines)
        else:
            raise ValueError(f"values.yaml: {name} has no `# --` line above it")
    return rows


def apache_values() -> str:
    """Return values for the chart of Apache Pulsar, from our chart rendered with ci/apache-sidecar-values.yaml."""
    objects = render("bundlekeel", CHART / "ci" / "apache-sidecar-values.yaml")
    sidecar_map = next(item for item in objects if item["metadata"]["name"] == "bundlekeel-sidecar")
    text: str = sidecar_map["data"]["broker-values.yaml"]
    origin = "Of a release `bundlekeel` with ci/apache-sidecar-values.yaml; NOTES say how to get yours."
    return f"# {_NOTE}\n# {origin}\n{text.rstrip()}\n"


def values_schema() -> str:
    """Return values.schema.json. Below `settings` it has the sidecar's setting keys, so that Helm refuses the same
    errors, and descriptions, which Artifact Hub and editors show. Parts of a pod have Kubernetes' own schema, because
    an unknown field in the admission policy would keep brokers from starting.
    """
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    settings: dict[str, Any] = {}
    for row in rows():
        *above, name = row.key.split(".")
        if PATTERN in above:
            continue
        node = settings
        for part in above:
            node = node.setdefault(part, _closed())["properties"]
        node[name] = {"description": row.why, **_value(row.allowed)}
    parameters = {
        name: {"description": spec.why, **_value(parameter_allowed(spec))}
        for name, spec in BY_NAME.items()
        if name not in TOP_LEVEL
    }
    # A key of Pulsar can have another unit than our name for it, so only the sidecar checks its value.
    settings["parameters"] = {**_closed(), "properties": {**{key: {} for key in BY_PULSAR_KEY}, **parameters}}
    choice = settings["placement"].pop("enum")
    section = {"name": {"enum": choice}, "repair": {"enum": ["on", "off", True, False]}}
    settings["placement"]["anyOf"] = [{"enum": choice}, {**_closed(), "properties": section}]
    settings["leadership"]["properties"]["seats"]["maximum"] = 3
    schema["properties"]["settings"] = {**_closed(), "properties": settings}
    schema["definitions"] = {kind: _kubernetes(kind) for kind in ("EnvVar", "EnvFromSource", "Volume", "VolumeMount")}
    for key, _, text in _values():
        value = schema
        for part in key.split("."):
            beside, value = value["properties"], value["properties"][part]
        beside[part] = {"description": text, **{name: rest for name, rest in value.items() if name != "description"}}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _kubernetes(kind: str) -> dict[str, Any]:
    """Return Kubernetes' own schema of a kind, without descriptions. Of volumes, only some types are in detail."""
    folder = Path(str(files("kubernetes_validate"))) / "kubernetes-json-schema" / f"v{KUBERNETES}-local-strict"
    definitions = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))["$defs"]

    def resolve(node: Any) -> Any:
        if isinstance(node, list):
            return [resolve(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return resolve(definitions[node["$ref"].rpartition("/")[2]])
        return {key: resolve(value) for key, value in node.items() if key not in ("description", "format")}

    schema: dict[str, Any] = definitions[f"io.k8s.api.core.v1.{kind}"]
    if kind == "Volume":
        schema["properties"] = {key: value if key in VOLUMES else {} for key, value in schema["properties"].items()}
    resolved: dict[str, Any] = resolve(schema)
    return resolved


_DURATION = r"^\s*[0-9.]+\s*(ms|s|m|h|d)?\s*$"
_LOW, _HIGH = r"(-?[\d.]+)", r"([\d.]+)"
_NUMBER = re.compile(
    rf"(whole )?number(?:, from {_LOW} to {_HIGH}|, {_LOW} or more|, more than {_LOW}(?: and at most {_HIGH})?)?"
)


def _value(allowed: str) -> dict[str, Any]:
    """Return the JSON schema for a text about allowed values, such as "number, from 0 to 1"; {} for an unknown form."""
    kind, null = allowed.removesuffix(", or null"), ["null"] if allowed.endswith(", or null") else []
    words = kind.split(", ")
    if words == ["true", "false"]:
        return {"type": "boolean"}
    if len(words) > 1 and all(word.isidentifier() for word in words):
        return {"enum": [*words, *([False] if "off" in words else [])]}  # YAML reads an unquoted off as false
    if kind.startswith("duration like"):
        return {"type": ["number", "string"], "pattern": _DURATION}
    if kind.startswith("list of "):
        return {"type": "array"}
    if number := _NUMBER.fullmatch(kind.removesuffix(OR_DURATION)):
        whole, least, most, alone, above, at_most = number.groups()
        bounds = {"minimum": least or alone, "exclusiveMinimum": above, "maximum": most or at_most}
        schema: dict[str, Any] = {"type": ["integer" if whole else "number", *null]}
        if kind.endswith(OR_DURATION):
            schema = {"type": ["number", "string"], "pattern": _DURATION}
        return schema | {name: float(limit) for name, limit in bounds.items() if limit is not None}
    return {}


def _closed() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def pages() -> dict[Path, str]:
    """Return the text of every generated file, by path."""
    copies = {
        CHART / "files" / source.name: source
        for source in (ROOT / "deploy" / "prometheus" / name for name in ("alerts.yml", "recording.yml"))
    }
    copies |= {CHART / "files" / "dashboards" / s.name: s for s in (ROOT / "deploy" / "dashboards").glob("*.json")}
    texts = {target: source.read_text(encoding="utf-8") for target, source in copies.items()}
    texts |= {CHART / "README.md": readme(), CHART / "values-apache-chart.yaml": apache_values()}
    return texts | {CHART / "values.schema.json": values_schema()}


def differing() -> list[Path]:
    """Return the generated files that are out of date, and dashboards that are no longer generated."""
    texts = pages()
    stale = [path for path in (CHART / "files" / "dashboards").glob("*") if path not in texts]
    return stale + [p for p, text in texts.items() if not p.is_file() or p.read_text(encoding="utf-8") != text]


def main(action: str) -> int:
    """Write the generated files (`write`), or print the names of those that differ (`check`). Return the exit code."""
    if action == "write":
        (CHART / "files" / "dashboards").mkdir(parents=True, exist_ok=True)
        for path, text in pages().items():
            path.write_text(text, encoding="utf-8")
        return 0
    for path in differing():
        print(f"{path.relative_to(ROOT)}: not as `python -m dev.chart write` makes it", file=sys.stderr)
    return 1 if differing() else 0


if __name__ == "__main__":
    if sys.argv[1:] not in (["write"], ["check"]):
        sys.exit("usage: python -m dev.chart write|check")
    sys.exit(main(sys.argv[1]))
