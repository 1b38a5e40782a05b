"""Reference pages and the example of settings, generated from the code: `python -m dev.docs write|check`.

A page is a (path, function) pair in `PAGES`; another generator appends its own pairs. `check` writes nothing, names
every page that differs from the code, and exits with 1.
"""

from __future__ import annotations

import difflib
import logging
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from bundlekeel.leader.gate.gate import CHECKS, Action, GateCheck
from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.pulsar.channel.findings import FINDINGS
from bundlekeel.recalibration.rules.thresholds import RANGES
from bundlekeel.records.metrics import METRICS, PREFIX
from bundlekeel.requests.reload import is_live
from bundlekeel.settings.describe import parameter_rows
from bundlekeel.settings.model import Settings
from bundlekeel.settings.parameters import TOP_LEVEL
from bundlekeel.settings.schema import SettingRow, children, plain, row_of, rows
from bundlekeel.wiring.openapi import openapi_text
from dev import NOTE
from dev.api_page import answers_text, api_page
from dev.cli_page import cli_page
from dev.decision_picture import picture
from dev.markdown import fill, table
from dev.runbook_samples import with_samples
from dev.scenario_page import format_page, scenarios_page
from dev.strategy_pages import pages as strategy_pages
from evidence.reaction.page import page as reaction_page
from evidence.reaction.page import with_medians

ROOT = Path(__file__).resolve().parent.parent

Page = tuple[str, Callable[[], str]]

# Pages that contain samples of output (mostly runbooks) or copies of source files.
SAMPLED = ("docs/operations/**/*.md",)

# The first code of each group, in the order of the enum.
_GROUPS = {
    Code.OVERLOADED: "Verdicts, in Pulsar's words",
    Code.SOLE_BROKER: "Verdicts that only Bundlekeel has",
    Code.SAME_BROKER: "Refusals of a candidate",
    Code.OWNER_CHANGED: "Moves that did not start, or did not end as requested",
    Code.SPLITTING: "Splits that are not made",
    Code.OUT_OF_RANGE: "Proposed thresholds that are not adopted",
    Code.TOPIC_POLICIES_OFF: "Rates of topics in quota groups, and resource groups",
    Code.EMPTY_REPORT: "Records that could not be read completely",
}
# Headings of sections in the example of settings, by the first key of the section.
_SECTIONS = {
    "cluster": "Set these two first; all else may stay as it is",
    "mode": "The cluster and what may be done to it",
    "strategy": "What decides. Uncommented, these win over what the brokers have set (adopt_broker_settings)",
    "parameters": "Parameters: uncomment what is to differ; Pulsar's own keys (and units) are accepted as well",
    "capacity": "What brokers can carry, where their own report has no limit (NICs of VMs and pods) or a wrong one",
    "windows": "When it may move bundles",
}
# Required keys, which come first in the example.
_NEEDED = ("cluster", "metadata_store")
# The page that explains each section of the settings, relative to docs/reference.
_MORE = {
    "capacity": "../concepts/capacity.md",
    "windows": "../concepts/guard.md#maintenance-windows",
    "rate": "../concepts/guard.md#adaptive-rate",
    "cycle": "../concepts/architecture.md",
    "store": "../operations/outages.md",
    "admin": "../operations/security.md#least-privilege-pulsar",
    "extensible": "../concepts/extensible.md",
    "counters": "../concepts/live-loads.md",
    "prometheus": "../concepts/live-loads.md",
    "effects": "../concepts/effects.md",
    "leadership": "../operations/sizing.md#how-many-sidecars",
    "api": "../operations/security.md",
    "journal": "../operations/security.md#the-journal-as-evidence",
    "history": "../concepts/history.md",
    "calibration": "../operations/thresholds.md",
    "shadow": "../concepts/shadow-strategies.md",
    "notify": "../operations/notifications.md",
    "traces": "../operations/traces.md",
    "quotas": "../operations/quotas.md",
}
# An item of each list and mapping of sections, and the name that the one of a mapping has. Of the two addresses of a
# webhook, which exclude each other, the better one.
_ITEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "capacity": (
        '"broker-*.example.com:8080"',
        {
            "nic_gbps": 10,
            "cores": 8,
            "msg_rate": 200000,
            "throughput": 500000000,
            "direct_memory_mb": 4096,
            "cpu": "ignore",
            "bandwidth": "ignore",
            "direct_memory": "ignore",
        },
    ),
    "windows": ("", {"cron": "0 2 * * 1-5", "time_zone": "Europe/Berlin", "minutes": 120, "allow": "act"}),
    "notify.webhooks": (
        "",
        {
            "name": "ops-chat",
            "url_file": "/etc/bundlekeel/ops-chat-url",
            "kind": "slack",
            "events": ["stops", "findings"],
            "min_severity": "warning",
            "timeout": "5s",
            "tls_trust_certs_file": None,
            "use_proxy": False,
        },
    ),
    "quotas.groups": (
        "acme",
        {
            "members": ["t:acme", "n:shop/orders"],
            "publish_messages": 500,
            "publish_bytes": "10MB",
            "dispatch_messages": 2000,
            "dispatch_bytes": "40MB",
        },
    ),
}


def settings_page() -> str:
    """Return the text of docs/reference/settings.md."""
    sections: dict[str, list[list[str]]] = {}
    for row in rows():
        first = row.key.partition(".")[0]
        section = first if first in _MORE or first != row.key else ""
        sections.setdefault(section, []).extend([_cells(row.key, row), *_item_cells(row.key)])
    lines: list[str] = []
    for name, body in sections.items():
        lines += [*_section_head(name), *table(["key", "default", "allowed", "meaning"], body), ""]
    live = ", ".join(f"`{row.key}`" for row in rows() if is_live(row.key))
    return fill("settings.md", note=NOTE, live=live, sections="\n".join(lines[:-1]))


def _section_head(name: str) -> list[str]:
    """Return the first lines of a section: its heading, purpose, and a link to the page that explains it. Empty for
    top-level keys.
    """
    if not name:
        return []
    lines = [purpose] if (purpose := _purpose(name)) else []
    if link := _MORE.get(name):
        page = ROOT / "docs/reference" / link.partition("#")[0]
        lines.append(f"[{page.read_text(encoding='utf-8').splitlines()[0].removeprefix('# ')}]({link})")
    return [f"## `{name}`", "", " ".join(lines), ""]


def _purpose(name: str) -> str:
    kind = Settings.model_fields[name].annotation
    is_section = isinstance(kind, type) and issubclass(kind, BaseModel)
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split()) if is_section else ""


def _cells(key: str, row: SettingRow) -> list[str]:
    default = "none, give one" if row.default is PydanticUndefined else _code(plain(row.default, row))
    return [f"`{key}`", default, row.allowed.replace("duration like 500ms or 1m", "duration"), row.why]


def _item_cells(key: str) -> list[list[str]]:
    """Return the table rows of the keys in an item of a list or mapping; empty for `capacity`, whose keys have rows
    already.
    """
    if key not in _ITEMS or key == "capacity":
        return []
    place = "<name>" if _ITEMS[key][0] else "<number>"
    path = (*key.split("."), "0")
    return [_cells(f"{key}.{place}.{name}", row) for name in children(path) if (row := row_of((*path, name)))]


def _calibrated_rows() -> list[list[str]]:
    return [
        [
            f"`{name}`",
            f"{row.minimum:g} to {row.maximum:g}",
            f"times {row.step:g}" if row.factor else f"{row.step:g}",
            ", ".join(row.strategies) or "all",
        ]
        for name, row in RANGES.items()
    ]


def parameters_page() -> str:
    """Return the text of docs/reference/parameters.md."""
    body = [
        [
            f"`{row['name']}`",
            _code(row["default"]),
            row["unit"],
            row["allowed"].replace(", or a duration like 30m", ""),
            "<br>".join(f"`{key}`" for key in row["pulsar_keys"]),
            row["used_by"],
            row["why"],
        ]
        for row in parameter_rows()
    ]
    head = ["name", "default", "unit", "allowed", "Pulsar's key", "used by", "why"]
    return fill(
        "parameters.md",
        note=NOTE,
        top_level=", ".join(f"`{name}`" for name in TOP_LEVEL),
        rows="\n".join(table(head, body)),
        calibrated="\n".join(table(["name", "range", "step", "strategies"], _calibrated_rows())),
    )


def codes_page() -> str:
    """Return the text of docs/reference/codes.md."""
    lines = [
        "# Codes",
        "",
        f"<!-- {NOTE} -->",
        "",
        "A code is one word for the reason why something was done or not. Plans, verdicts, the journal and responses",
        "of the API contain codes, and metrics count them.",
    ]
    body: list[list[str]] = []
    for code in Code:
        if code in _GROUPS:
            lines += [*(table(["code", "meaning"], body) if body else []), "", f"## {_GROUPS[code]}", ""]
            body = []
        body.append([f"`{code}`", EXPLANATIONS[code]])
    lines += [*table(["code", "meaning"], body), "", "## Findings of the ownership channel", ""]
    body = [[f"`{code}`", meaning] for code, meaning in FINDINGS.items()]
    return "\n".join([*lines, *table(["code", "meaning"], body), ""])


def gate_page() -> str:
    """Return the text of docs/reference/gate.md, which lists the checks of each kind of action."""
    actions = table(["action", "meaning"], [[_words(action.name), action.value] for action in Action])
    rows = [
        [_words(check.name), check.value, *("yes" if check in CHECKS[action] else "" for action in Action)]
        for check in GateCheck
    ]
    head = ["check", "what must hold", *(_words(action.name) for action in Action)]
    return fill("gate.md", note=NOTE, actions="\n".join(actions), checks="\n".join(table(head, rows)))


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


def metrics_page() -> str:
    """Return the text of docs/reference/metrics.md: every metric with type, labels and meaning."""
    kinds = {metric.name: "gauge" if metric.kind == "table" else metric.kind for metric in METRICS}
    rows = [[_code(f"{PREFIX}{item.name}"), kinds[item.name], ", ".join(item.labels), item.help] for item in METRICS]
    listed = table(["metric", "type", "labels", "meaning"], rows)
    return fill("metrics.md", note=NOTE, rows="\n".join(listed))


def example_settings() -> str:
    """Return config/bundlekeel.example.yaml: every key with its default, allowed values and purpose."""
    lines = [
        "# Every key of the settings at its default. Copy bundlekeel.minimal.yaml instead, and add what is to differ.",
        f"# {NOTE}",
        "# Check yours with: bundlekeel config check FILE. Relative paths begin at the folder of the file.",
    ]
    for name in sorted(Settings.model_fields, key=lambda item: item not in _NEEDED):
        if name in _SECTIONS:
            lines += ["", f"# --- {_SECTIONS[name]}", ""]
        inside = [row for row in rows() if row.key.startswith(f"{name}.")]
        if name == "parameters":
            lines += ["parameters:", *_parameter_lines()]
        elif name == "capacity":
            lines += ["capacity:", *(f"  # {line}" for line in _item_lines(name))]
        elif inside:
            lines += ["", f"# {_purpose(name)}", f"{name}:", *_section_lines(inside)]
        else:
            # Comments, because an explicit strategy would override that of the brokers (adopt_broker_settings).
            mark = "# " if name in TOP_LEVEL else ""
            lines += [line for row in rows() if row.key == name for line in _key_lines(row, mark=mark)]
    return "\n".join([*lines, ""])


# All generated pages: (path below the repository, function that returns the whole text).
PAGES: list[Page] = [
    ("docs/reference/settings.md", settings_page),
    ("docs/reference/parameters.md", parameters_page),
    ("docs/reference/codes.md", codes_page),
    ("docs/reference/gate.md", gate_page),
    ("docs/reference/metrics.md", metrics_page),
    ("docs/reference/cli.md", cli_page),
    # Before the OpenAPI document, which contains these examples.
    ("service/bundlekeel/api/examples.json", answers_text),
    ("docs/reference/api.md", api_page),
    ("config/openapi.json", openapi_text),
    ("config/bundlekeel.example.yaml", example_settings),
    ("docs/reference/scenarios.md", scenarios_page),
    ("docs/reference/scenario-format.md", format_page),
    ("docs/reference/reaction.md", reaction_page),
    ("README.md", partial(with_medians, ROOT / "README.md")),
    *((str(page.relative_to(ROOT)), partial(with_samples, page)) for one in SAMPLED for page in sorted(ROOT.glob(one))),
    *strategy_pages(),
    ("docs/concepts/decision-rule.svg", picture),
]


def write(pages: Sequence[Page], root: Path = ROOT) -> None:
    """Bring every page up to date, and print the names of those that change."""
    for path, make in pages:
        target = root / path
        text = make()
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            print(f"written: {path}")


def drift(pages: Sequence[Page], root: Path = ROOT) -> list[str]:
    """Return one message for each page that differs from the code, with the first differing lines."""
    differences = []
    for path, make in pages:
        target = root / path
        have = target.read_text(encoding="utf-8") if target.exists() else ""
        want = make()
        if have != want:
            difference = list(difflib.unified_diff(have.splitlines(), want.splitlines(), lineterm="", n=0))
            excerpt = "\n".join(line[:160] for line in difference[2:10])
            differences.append(f"{path} is out of date; run `python -m dev.docs write`\n{excerpt}")
    return differences


def main(arguments: Sequence[str]) -> int:
    """Run `write` or `check`, and return the exit code."""
    if list(arguments) == ["write"]:
        write(PAGES)
        return 0
    if list(arguments) == ["check"]:
        messages = drift(PAGES)
        for message in messages:
            print(message, file=sys.stderr)
        return 1 if messages else 0
    print("usage: python -m dev.docs write|check", file=sys.stderr)
    return 2


def _code(value: object) -> str:
    return f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()


def _key_lines(row: SettingRow, *, indent: str = "", mark: str = "") -> list[str]:
    name = row.key.rpartition(".")[2]
    lines = [*_comment(f"{row.why} ({row.allowed})", indent), f"{indent}{mark}{name}: {_yaml(plain(row.default, row))}"]
    if row.key in _ITEMS:
        lines += [f"{indent}# {name}:  # instead of the line above, for example"]
        lines += [f"{indent}#   {line}" for line in _item_lines(row.key)]
    return lines


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        140,
        initial_indent=f"{indent}# ",
        subsequent_indent=f"{indent}#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _section_lines(inside: Sequence[SettingRow]) -> list[str]:
    lines: list[str] = []
    within: tuple[str, ...] = ()
    for row in inside:
        parents = tuple(row.key.split(".")[1:-1])
        for depth in range(len(parents)):
            if parents[: depth + 1] != within[: depth + 1]:
                lines.append(f"{'  ' * (depth + 1)}{parents[depth]}:")
        within = parents
        lines += _key_lines(row, indent="  " * (len(parents) + 1))
    return lines


def _parameter_lines() -> list[str]:
    lines = []
    for row in parameter_rows():
        if row["name"] not in TOP_LEVEL:
            unit = "" if row["unit"] in ("true/false", "names") else f"; {row['unit']}"
            users = "" if row["used_by"] == "all" else f"; used by {row['used_by']}"
            lines += _comment(f"{row['why']} ({row['allowed']}{unit}{users})", "  ")
            lines.append(f"  # {row['name']}: {_yaml(row['default'])}")
    return lines


def _item_lines(key: str) -> list[str]:
    """Return an example item of a list or mapping, with its keys. An item of `capacity` must not have both a limit and
    `ignore` for one resource."""
    place, example = _ITEMS[key]
    lines = [f"{place}:"] if place else []
    for number, (name, value) in enumerate(example.items()):
        row = row_of((*key.split("."), "0", name))
        assert row is not None
        mark = "  " if place or number else "- "
        lines += [f"  # {row.why} ({row.allowed})", f"{mark}{name}: {_yaml(value)}"]
    return lines


if __name__ == "__main__":
    # The samples come from sidecars in memory, whose log would hide the result.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    sys.exit(main(sys.argv[1:]))
