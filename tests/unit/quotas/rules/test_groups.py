"""Groups of quotas: validation, members, and their traffic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bundlekeel.model.errors import ConfigError
from bundlekeel.quotas.rules.groups import QuotaGroup, QuotaLimits, check_group, check_groups, resolve
from bundlekeel.quotas.rules.lines import lines_of
from bundlekeel.quotas.rules.usage import Catalogue, TopicRates, UsageLine, topic_of
from tests.support.quota_lines import single, told

SPACES = ("acme/orders", "acme/tmp-1", "acme/tmp-2", "other/x", "pulsar/system")
TENANTS = ("acme", "other", "pulsar")


def group(name: str = "a", *members: str, **limits: float) -> QuotaGroup:
    """A group of 100 messages/s unless told otherwise."""
    return QuotaGroup(
        name=name, limits=QuotaLimits(**(limits or {"publish_messages": 100})), members=members or ("t:acme",)
    )


class TestDeclared:
    """Errors of a group name the field, the value and the allowed values."""

    @pytest.mark.parametrize(
        ("limits", "field", "value", "words"),
        [
            ({"publish_messages": -5}, "publish_messages", -5, "negative"),
            ({"publish_messages": 0}, "publish_messages", 0, "out of range"),
            ({"dispatch_messages": 0.5}, "dispatch_messages", 0.5, "out of range"),
            ({"publish_messages": 2**31}, "publish_messages", 2**31, "out of range"),
            ({"dispatch_bytes": 1e30}, "dispatch_bytes", 1e30, "out of range"),
            ({"publish_bytes": math.inf}, "publish_bytes", math.inf, "out of range"),
            ({"publish_bytes": True}, "publish_bytes", True, "not a number"),
            ({"publish_messages": 100, "publish_bytes": 50}, "publish_bytes", 50, "less than one byte a message"),
        ],
    )
    def test_limits(self, limits: dict[str, float], field: str, value: float, words: str) -> None:
        """Negative, zero (no limit, to Pulsar), more than Pulsar can say, and pairs that make no sense."""
        with pytest.raises(ConfigError, match=words) as caught:
            check_group(group("a", **limits))
        assert caught.value.field == f"quotas.groups.a.{field}"
        assert caught.value.value == value
        assert caught.value.allowed

    def test_nan(self) -> None:
        """Not a number is in no range."""
        with pytest.raises(ConfigError, match="out of range"):
            check_group(group("a", publish_messages=math.nan))

    def test_nothing_limited(self) -> None:
        """A group has to limit something."""
        with pytest.raises(ConfigError, match="limits nothing") as caught:
            check_group(QuotaGroup(name="a", limits=QuotaLimits(), members=("t:acme",)))
        assert caught.value.field == "quotas.groups.a"

    def test_no_members(self) -> None:
        with pytest.raises(ConfigError, match="has no members"):
            check_group(QuotaGroup(name="a", limits=QuotaLimits(publish_messages=1), members=()))

    @pytest.mark.parametrize("member", ["acme", "t:", "t:acme/x", "n:acme", "n:acme/", "n:/x", "x:acme", "n: acme/x"])
    def test_members(self, member: str) -> None:
        """Members carry their kind and have its form."""
        with pytest.raises(ConfigError, match="not a member") as caught:
            check_group(group("a", member))
        assert caught.value.value == member

    def test_name(self) -> None:
        """Names go into metrics and paths."""
        with pytest.raises(ConfigError, match="not a name"):
            check_group(group("a b"))

    @pytest.mark.parametrize(
        ("one", "other"), [("t:acme", "t:acme"), ("t:acme", "n:acme/x"), ("n:acme/x", "t:ac*"), ("n:acme/x", "t:acme")]
    )
    def test_overlap(self, one: str, other: str) -> None:
        with pytest.raises(ConfigError, match="belongs to group a already") as caught:
            check_groups([group("a", one), group("b", other)])
        assert (caught.value.field, caught.value.value) == ("quotas.groups.b.members", other)

    def test_twice(self) -> None:
        """One group of a name."""
        with pytest.raises(ConfigError, match="declared twice"):
            check_groups([group("a", "t:acme"), group("a", "t:other")])

    def test_good(self) -> None:
        """Groups that are apart."""
        groups = [group("a", "t:acme"), group("b", "n:other/*", dispatch_bytes=1e9)]
        assert check_groups(groups) == tuple(groups)


class TestMembers:
    def test_tenants_and_globs(self) -> None:
        """A tenant is all its namespaces."""
        membership = resolve([group("a", "t:acme"), group("b", "n:other/?")], TENANTS, SPACES)
        assert membership.group_of == {"acme/orders": 0, "acme/tmp-1": 0, "acme/tmp-2": 0, "other/x": 1}
        assert not membership.problems

    def test_new_namespaces_join(self) -> None:
        assert resolve([group("a", "n:acme/tmp-*")], TENANTS, (*SPACES, "acme/tmp-3")).group_of["acme/tmp-3"] == 0

    def test_system_namespaces(self) -> None:
        """Pulsar's own join only by name."""
        assert "pulsar/system" not in resolve([group("a", "t:*")], TENANTS, SPACES).group_of
        assert "pulsar/system" in resolve([group("a", "n:pulsar/system")], TENANTS, SPACES).group_of

    @pytest.mark.parametrize("member", ["t:nobody", "n:nobody/x", "n:nobody/*"])
    def test_unknown_tenant(self, member: str) -> None:
        (problem,) = resolve([group("a", member)], TENANTS, SPACES).problems
        assert (problem.value, problem.field) == (member, "quotas.groups.a.members")
        assert problem.allowed == "acme, other, pulsar"

    def test_overlap_of_globs(self) -> None:
        membership = resolve([group("a", "n:*/orders"), group("b", "t:acme")], TENANTS, SPACES)
        assert membership.group_of["acme/orders"] == 0
        assert [problem.value for problem in membership.problems] == ["acme/orders"]

    def test_limits_as_columns(self) -> None:
        """Infinite where nothing is limited."""
        table = resolve([group("a", publish_messages=5, dispatch_bytes=7)], TENANTS, SPACES).limits()
        assert table.tolist() == [[5, math.inf, math.inf, 7]]


class TestUsage:
    """Usage by group, broker and topic."""

    membership = resolve([group("a", "t:acme"), group("b", "t:other")], TENANTS, SPACES)
    samples = (
        ("b2:80", "persistent://acme/orders/p-partition-1", (1, 10, 2, 20)),
        ("b1:80", "persistent://acme/orders/p-partition-0", (3, 30, 4, 40)),
        ("b1:80", "persistent://acme/tmp-1/t", (0.1, 1, math.nan, -5)),
        ("b1:80", "persistent://other/x/t", (7, 70, 8, 80)),
        ("b1:80", "persistent://third/x/t", (9, 90, 9, 90)),
    )

    def test_sums(self) -> None:
        table = Catalogue().table(told(self.samples), self.membership)
        assert table.keys == (
            ("a", "persistent://acme/orders/p"),
            ("a", "persistent://acme/tmp-1/t"),
            ("b", "persistent://other/x/t"),
        )
        assert table.by_group(2).tolist() == [[4.1, 41, 6, 60], [7, 70, 8, 80]]
        assert table.by_broker(0).tolist() == [[3.1, 31, 4, 40], [1, 10, 2, 20]]
        assert table.seen == {"persistent://acme/orders/p": 2}

    def test_scalable_topics_are_in_no_group(self) -> None:
        """Pulsar 5.0: a broker serves segments, and there are no rates for them that could be written."""
        rates = (1, 10, 2, 20)
        names = ("segment://acme/orders/hot/0000-7fff-0", "topic://acme/orders/hot")
        scalable = [("b1:80", name, rates) for name in names]
        table = Catalogue().table(told([*self.samples, *scalable]), self.membership)
        assert table.keys == Catalogue().table(told(self.samples), self.membership).keys

    def test_order_of_brokers(self) -> None:
        """Makes no difference."""
        one, other = (Catalogue().table(told(rows), self.membership) for rows in (self.samples, self.samples[::-1]))
        assert (one.keys, one.brokers) == (other.keys, other.brokers)
        assert one.rates.tolist() == other.rates.tolist()

    def test_nothing(self) -> None:
        """No topics, no rows, no failure; who serves no such topic has answered."""
        table = Catalogue().table([TopicRates("b1:80", (), np.zeros((0, 4)))], self.membership)
        assert table.by_group(2).tolist() == [[0] * 4] * 2
        lines = lines_of(table, {}, np.zeros((0, 4)))
        assert (lines.participants, len(lines)) == (("b1:80",), 0)

    def test_catalogue(self) -> None:
        """One that is kept makes the same tables as a new one: as rates, topics, brokers and groups change."""
        catalogue = Catalogue()
        more = ("b3:80", "persistent://acme/orders/q", (5, 5, 5, 5))
        moved = [(more[0], name, rates) for _, name, rates in self.samples]
        others = resolve([group("b", "t:other")], TENANTS, SPACES)
        for samples, membership in (
            (self.samples, self.membership),
            ([(broker, name, (1, 2, 3, 4)) for broker, name, _ in self.samples], self.membership),
            ((*self.samples, more), self.membership),
            (self.samples, self.membership),
            (moved, self.membership),
            (moved, others),
            ((), others),
        ):
            rows = catalogue.table(told(samples), membership)
            new = Catalogue().table(told(samples), membership)
            assert (rows.keys, rows.brokers, rows.seen) == (new.keys, new.brokers, new.seen)
            for column in ("key", "broker", "group", "rates"):
                assert np.array_equal(getattr(rows, column), getattr(new, column))

    def test_lines(self) -> None:
        table = Catalogue().table(told(self.samples), self.membership)
        key = ("a", "persistent://acme/orders/p")
        passing = np.full((len(table.keys), 4), math.inf)
        passing[table.keys.index(key)] = (3, math.inf, 4.3, 100)
        lines = single(lines_of(table, {key[1]: 2}, passing))
        assert set(lines) == {"b1:80", "b2:80"}
        assert lines["b1:80"][key] == UsageLine((3, 30, 4, 40), (3, 30, 4, 40), (True, False, False, False), 2)
        assert lines["b2:80"][key] == UsageLine((1, 10, 2, 20), (1, 10, 2, 20), (False,) * 4, 2)

    @pytest.mark.parametrize(
        ("name", "base"), [("a-partition-12", "a"), ("a-partition-x", "a-partition-x"), ("a", "a")]
    )
    def test_topic_of(self, name: str, base: str) -> None:
        """Policies belong to the partitioned topic."""
        assert topic_of(f"persistent://t/n/{name}") == f"persistent://t/n/{base}"
