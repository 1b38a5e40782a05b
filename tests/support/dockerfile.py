"""A Dockerfile as stages of instructions, for what its text promises."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stage:
    """One `FROM`: its name, what it starts from, and its instructions as (WORD, rest) in order."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        """Return the arguments of each of these instructions."""
        return [rest for name, rest in self.instructions if name == word]

    def last(self, word: str) -> str:
        """Return the arguments of the last such instruction, "" if there is none."""
        return (self.all(word) or [""])[-1]


def stages(text: str) -> list[Stage]:
    """Every stage in order, without comments, continued lines joined, `ARG`s before the first `FROM` filled in."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    arguments: dict[str, str] = {}
    stages_read: list[Stage] = []
    for line in joined.splitlines():
        if not line.strip():
            continue
        word, rest = line.split(maxsplit=1)
        rest = " ".join(rest.split())
        if word == "ARG" and not stages_read:
            name, _, default = rest.partition("=")
            arguments[name] = default
        elif word == "FROM":
            base, _, name = re.sub(r"\$\{(\w+)\}", lambda m: arguments[m.group(1)], rest).partition(" AS ")
            stages_read.append(Stage(name, base))
        else:
            stages_read[-1].instructions.append((word, rest))
    return stages_read
