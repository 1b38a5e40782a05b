"""Examples at the end of the help of the main commands, and in docs/reference/cli.md, by command name."""

from __future__ import annotations

from typing import Final

from bundlekeel.settings.features import with_features

_OWN: Final = {
    "status": ("status", "status --watch -o wide"),
    "brokers": ("brokers -o wide", "brokers --sort score"),
    "bundles": ("bundles --broker broker-1.pulsar:8080 --limit 10", "bundles -n shop/orders -o json"),
    "summary": ("summary --since yesterday --until today",),
    "verdicts": ("verdicts --since 2h",),
    "journal": ("journal --kind move --since 24h", "journal --kind audit --limit 50 -o json"),
    "journal verify": ("journal verify", "journal verify bundlekeel-journal.jsonl.1 bundlekeel-journal.jsonl"),
    "review approve": ('review approve 5f0c3a1be2d4 --reason "agreed"',),
    "review discard": ('review discard 5f0c3a1be2d4 --reason "not this week"',),
    "stop": ('stop t-9 --reason "too slow"',),
    "why": ("why persistent://shop/orders/created", "why broker-1.pulsar:8080"),
    "where": (
        "where shop/orders",
        "where persistent://shop/orders/created --if-unowned",
        "where shop/orders --if-unowned --url https://keel-1:8090 --token-file token --tls-ca ca.crt",
    ),
    "plan": ("plan --remove-broker broker-2.pulsar:8080 --scale 1.5",),
    "plan execute": ('plan execute 5f0c3a1be2d4977a --reason "balance the load" --wait',),
    "pause": (
        'pause --for 2h --reason "release of the orders service"',
        'pause --scope namespace:shop/orders --reason "incident 4711"',
    ),
    "resume": ('resume --reason "the release is done"', 'resume --scope namespace:shop/orders --reason "over"'),
    "mode": ("mode", 'mode recommend --reason "an hour of measuring"'),
    "transfer": (
        "transfer persistent://shop/orders/created --to broker-2.pulsar:8080",
        "transfer shop/orders/0x40000000_0x80000000 --to broker-2.pulsar:8080 --yes --reason hot --wait",
    ),
    "unload": ('unload shop/orders --yes --reason "new policy" --wait',),
    "split": ("split shop/orders/LARGEST", 'split shop/orders/LARGEST --unload --yes --reason "one hot bundle"'),
    "drain": ("drain broker-1.pulsar:8080", 'drain broker-1.pulsar:8080 --yes --reason "new disk" --wait'),
    "warm": ('warm broker-1.pulsar:8080 --yes --reason "it is back" --wait',),
    "restart plan": ("restart plan --watch", "restart plan -o json"),
    "cordon": ('cordon broker-1.pulsar:8080 --reason "suspect disk"',),
    "uncordon": ('uncordon broker-1.pulsar:8080 --reason "the disk is new"',),
    "pin": ('pin persistent://shop/orders/created --for 2h --reason "being debugged"',),
    "unpin": ('unpin persistent://shop/orders/created --reason "debugged"',),
    "include": ('include "n:shop/*" --reason "the sale is over"',),
    "exclude": ('exclude "n:shop/*" --for 1d --reason "sale"',),
    "run": ("run -c bundlekeel.yaml",),
    "config init": ("config init",),
    "config show": ("config show --origin", "config show --changed"),
    "config check": ("config check bundlekeel.yaml",),
    "doctor": (
        "doctor -c bundlekeel.yaml",
        "doctor --for act",
        "doctor --for act --url https://keel-1:8090 --token-file token --tls-ca ca.crt",
    ),
    "takeover": ("takeover --dry-run", 'takeover --reason "go live"'),
    "handback": ('handback --reason "back to the brokers"',),
    "uninstall": ("uninstall --dry-run",),
    "deadman": ("deadman --after 10m --dry-run", "deadman --after 10m --every 2m"),
    "token new": ("token new ann --role operator", "token new ann --role operator -o json"),
}
EXAMPLES: Final = with_features(_OWN, "examples", "EXAMPLES")


def examples_of(command: str) -> tuple[str, ...]:
    """Return the example command lines of a command and of its subcommands; () for most commands."""
    examples = (lines for name, lines in EXAMPLES.items() if f"{name} ".startswith(f"{command} "))
    return tuple(f"bundlekeel {line}" for lines in examples for line in lines)
