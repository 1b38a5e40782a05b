"""Settings of quotas: groups, enforcement, and the computation of shares."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from bundlekeel.model.errors import CodecError, ConfigError
from bundlekeel.model.numbers import MAX_NUMBER, number
from bundlekeel.quotas.rules.groups import QuotaGroup, QuotaLimits, Rates, check_groups, check_least
from bundlekeel.quotas.rules.rate_plan import WriteBudget
from bundlekeel.quotas.rules.shares import ShareTuning
from bundlekeel.settings.types import AllowedWords, Duration, InvalidSetting, Off, Section

_SIZE = re.compile(r"(-?\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?")
_NUMBER_WORDS = AllowedWords("a number like 500", strict_number=True)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE_WORDS = AllowedWords("bytes like 500000, 500kB, 10MB or 1MiB")
_GROUPS_WORDS = AllowedWords('mapping of groups by name, such as {acme: {members: ["t:acme"], publish_bytes: 10MB}}')
_PREFIX = "quotas."


def parse_size(value: object) -> object:
    """Return the bytes of `10MB` (10,000,000), `1MiB` (1,048,576) or a plain number; else raise InvalidSetting."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InvalidSetting("not a number of bytes", allowed=_SIZE_WORDS.allowed)
    try:
        return (
            number(match[1], field="bytes", lowest=-MAX_NUMBER)
            * (1024 if match[3] else 1000) ** _POWERS[match[2].upper()]
        )
    except CodecError:
        raise InvalidSetting("not a number of bytes", allowed=_SIZE_WORDS.allowed) from None


def _number(value: object) -> object:
    """Return a number unchanged. Refuses `true` and `"500"`, as the API does."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise InvalidSetting("not a number", allowed=_NUMBER_WORDS.allowed)


Number = Annotated[float | None, BeforeValidator(_number), _NUMBER_WORDS]
Size = Annotated[float | None, BeforeValidator(parse_size), _SIZE_WORDS]


class GroupSettings(Section):
    """A group: limits per second for the sum of its members over all brokers."""

    members: tuple[str, ...] = Field(
        default=(), description="`t:TENANT` or `n:TENANT/NAMESPACE`, globs allowed; new namespaces join automatically"
    )
    publish_messages: Number = Field(default=None, description="messages/s published; null: no limit")
    publish_bytes: Size = Field(default=None, description="bytes/s published; null: no limit")
    dispatch_messages: Number = Field(default=None, description="messages/s delivered; null: no limit")
    dispatch_bytes: Size = Field(default=None, description="bytes/s delivered; null: no limit")


class QuotaSettings(Section):
    """Limits of tenants and namespaces over all brokers (PIP-82)."""

    enforcer: Annotated[Literal["off", "native", "policies"], Off] = Field(
        default="off",
        description="off: only shown; native: Pulsar's ResourceGroups as declared; policies: topic rates of each topic",
    )
    cycle: Duration = Field(
        default=10.0,
        ge=1,
        le=600,
        description="time between two measurements of usage, after which shares are computed",
    )
    ask_all_every: int = Field(
        default=5,
        ge=1,
        le=100,
        description="all brokers are read once in this number of cycles, else only brokers with limited bundles",
    )
    split: Literal["even", "proportional"] = Field(
        default="even", description="division among the limited topics of a broker: even, or by past usage"
    )
    room: float = Field(
        default=0.10, ge=0.06, le=1, description="part by which a topic may grow above its demand before it is limited"
    )
    overcommit: float = Field(
        default=0.1,
        ge=0,
        le=0.1,
        description="how much of `room` is added to the limit instead of taken from it; the sum of shares may exceed "
        "the limit by as much",
    )
    floor: float = Field(
        default=0.05,
        ge=0,
        le=0.5,
        description="part of the limit that all idle topics together get in addition, so that they can start",
    )
    burst: float = Field(
        default=0.25, ge=0, le=1, description="largest unused part of the limit that one topic gets in addition"
    )
    least_messages: float = Field(default=1, ge=1, description="lowest share in messages/s")
    least_bytes: float = Field(default=1024, ge=1, description="lowest share in bytes/s")
    write_up: float = Field(
        default=0.10, ge=0, le=1, description="write a higher rate if it rises by at least this part"
    )
    write_down: float = Field(
        default=0.05, ge=0, le=0.5, description="write a lower rate if it falls by at least this part"
    )
    writes_per_minute: int = Field(
        default=600, ge=1, le=100_000, description="highest number of written topic policies and attachments per minute"
    )
    topic_metrics: int = Field(
        default=20,
        ge=0,
        le=1000,
        description="highest number of topics with own metrics; topics with the largest loss come first",
    )
    groups: Annotated[dict[str, GroupSettings], _GROUPS_WORDS] = Field(
        default_factory=dict, description="groups by name"
    )

    @model_validator(mode="after")
    def _checked(self) -> QuotaSettings:
        try:
            for group in check_groups(self.declared()):
                check_least(group, self.least())
        except ConfigError as error:
            given = "" if error.value is None else f" = {error.value!r}"
            what = str(error).removeprefix(f"{error.field}{given}: ").partition(" (allowed")[0]
            field = error.field.removeprefix(_PREFIX)
            raise InvalidSetting(
                f"{given[3:]}: {what}" if given else what, field=field, allowed=error.allowed
            ) from None
        return self

    def declared(self) -> tuple[QuotaGroup, ...]:
        """Return the groups in the order of the settings file."""
        return tuple(
            QuotaGroup(
                name=name,
                limits=QuotaLimits(
                    publish_messages=item.publish_messages,
                    publish_bytes=item.publish_bytes,
                    dispatch_messages=item.dispatch_messages,
                    dispatch_bytes=item.dispatch_bytes,
                ),
                members=item.members,
            )
            for name, item in self.groups.items()
        )

    def least(self) -> Rates:
        """Return the lowest share that any topic gets, per second, in the order of `KINDS`."""
        return self.least_messages, self.least_bytes, self.least_messages, self.least_bytes

    def tuning(self) -> ShareTuning:
        """Return the parameters for computing shares."""
        return ShareTuning(
            room=self.room,
            overcommit=self.overcommit,
            floor=self.floor,
            least_messages=self.least_messages,
            least_bytes=self.least_bytes,
            burst=self.burst,
            split=self.split,
        )

    def write_budget(self) -> WriteBudget:
        """Return the limits of writes: smallest change of a rate, and number of writes per cycle."""
        most = max(1, int(self.writes_per_minute * self.cycle / 60))
        return WriteBudget(up=self.write_up, down=self.write_down, most=most)


# Sections of this feature, by the section of the sidecar that comes after them.
SECTIONS: Final = {"logging": {"quotas": QuotaSettings}}
