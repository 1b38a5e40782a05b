"""Groups in effect: computed once per declaration, also when there are many, and groups removed from the settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from bundlekeel.model.errors import ConfigError
from bundlekeel.quotas.requests import QuotaRequest
from bundlekeel.quotas.rules.groups import QuotaGroup, QuotaLimits, check_groups, resolve
from bundlekeel.quotas.stored_groups import GroupRegister, declared


def group(name: str, *members: str) -> QuotaGroup:
    return QuotaGroup(name=name, limits=QuotaLimits(publish_messages=100), members=members)


def request(*members: str) -> QuotaRequest:
    return QuotaRequest(by="ann", reason="r", since_ms=0, members=members, publish_messages=100.0)


class Counted(tuple[str, ...]):
    """Members that count how often they are gone through."""

    visits = 0

    def __iter__(self) -> Iterator[str]:
        """One more."""
        Counted.visits += 1
        return super().__iter__()


def visits(count: int) -> int:
    """Count visits of members when this number of groups is checked and resolved."""
    groups = [
        QuotaGroup(
            name=f"g{row}", limits=QuotaLimits(publish_messages=100), members=Counted((f"n:t{row}/a", f"t:u{row}"))
        )
        for row in range(count)
    ]
    Counted.visits = 0
    check_groups(groups)
    resolve(groups, ("t1",), ("t1/a",))
    return Counted.visits


class Checks:
    """`check_groups` that counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, groups: Sequence[QuotaGroup]) -> tuple[QuotaGroup, ...]:
        """One more."""
        self.count += 1
        return check_groups(groups)


def test_checking_grows_with_the_groups_only() -> None:
    """Twice as many groups, twice the work."""
    assert visits(40) == 2 * visits(20)


@pytest.mark.parametrize("count", [1, 10, 64])
def test_requests_are_checked_in_one_pass(count: int) -> None:
    """However many there are."""
    checks = Checks()
    groups = declared((group("s", "t:s"),), {f"g{row}": request(f"n:t{row}/a") for row in range(count)}, checks)
    assert len(groups.groups) == count + 1 and not groups.problems
    assert checks.count == 1


def test_those_that_do_not_fit_are_found() -> None:
    checks, names = Checks(), [f"g{row:02}" for row in range(64)]
    requests = {name: request(f"n:t{row}/a") for row, name in enumerate(names)} | {
        "g40": request("t:s"),
        "g63": request("t:t7"),
    }
    groups = declared((group("s", "t:s"),), requests, checks)
    assert [item.name for item in groups.groups] == ["s", *(name for name in names if name not in ("g40", "g63"))]
    assert [item.field for item in groups.problems] == ["quotas.groups.g40.members", "quotas.groups.g63.members"]
    assert checks.count < len(names) / 2


def test_made_once() -> None:
    register = GroupRegister((group("s", "t:s"),))
    requests = {"a": request("t:a")}
    first = register.now(requests)
    assert register.now(requests) is first and register.now(dict(requests)) is first
    assert [item.name for item in register.now({}).groups] == ["s"]
    assert [item.name for item in register.now(requests).groups] == ["s", "a"]


def test_overlap_is_told_of_the_later_group() -> None:
    """Whichever of them names the namespace; a group may name what it has anyway."""
    for groups, value in (
        ([group("b", "t:acme", "n:acme/x"), group("a", "t:ac*")], "t:ac*"),
        ([group("b", "n:ac*/x"), group("a", "n:acme/x")], "n:acme/x"),
    ):
        with pytest.raises(ConfigError, match="belongs to group b already") as caught:
            check_groups(groups)
        assert (caught.value.field, caught.value.value) == ("quotas.groups.a.members", value)
    assert check_groups([group("a", "t:acme", "n:acme/x"), group("b", "n:acmee/x")])
