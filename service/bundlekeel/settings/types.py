"""Types of settings: durations, store addresses, names from a fixed list."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from bundlekeel.model.errors import CodecError
from bundlekeel.model.numbers import integer
from bundlekeel.model.parameter_table import PLACEMENTS, RELEASES, STRATEGIES, STRATEGY_CLASSES
from bundlekeel.model.parameters import choices
from bundlekeel.model.text_format import parse_duration, suggest
from bundlekeel.model.uris import credentials_fault, is_http_address, place_fault

_HOST = r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,9})?"
_STORE = re.compile(rf"(?:zk:)?{_HOST}(?:,{_HOST})*(?:/[^/\s]+)*")
# Schemes of pyarrow's file systems.
_SCHEMES = ("file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
_OTHER_STORES = ("etcd:", "oxia:", "rocksdb:", "memory:", "raft:")


@dataclass(frozen=True, slots=True)
class AllowedWords:
    """The allowed values of a field, as text for the reference page and messages.

    `null`: False if null is not allowed although the type accepts it. `strict_number`: the field rejects strings, so
    the text of an environment variable is converted to a number first."""

    allowed: str
    null: bool = True
    strict_number: bool = False


class Section(BaseModel):
    """A section of the settings. Unknown keys are errors; values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class InvalidSetting(ValueError):
    """An error that a validator raises.

    `field`: relative to the section of the validator. `allowed`: the allowed values; "": those of the field; None: omit
    them, because the value itself is not wrong. `hidden`: do not show the value, because it may contain credentials."""

    def __init__(self, message: str, *, field: str = "", allowed: str | None = "", hidden: bool = False) -> None:
        super().__init__(message)
        self.field = field
        self.allowed = allowed
        self.hidden = hidden


def together(section: BaseModel, one: str, other: str) -> None:
    """Raises InvalidSetting, for the missing key, if only one of the keys `one` and `other` is set."""
    missing = [name for name in (one, other) if getattr(section, name) is None]
    if len(missing) == 1:
        what = f"{one} and {other} go together; {missing[0]} is missing"
        raise InvalidSetting(what, field=missing[0], allowed="both, or neither")


def _duration(value: object) -> float:
    try:
        return parse_duration(value)
    except ValueError:
        raise InvalidSetting("not a duration") from None


def _store_address(value: str) -> str:
    if value.startswith(_OTHER_STORES):
        kind = value.partition(":")[0]
        raise InvalidSetting(f"{kind} is not supported by this release; only ZooKeeper is")
    if "@" in value:
        raise InvalidSetting("holds credentials; give store.sasl_username and store.sasl_password", hidden=True)
    if _STORE.fullmatch(value) is None or not (value.startswith("zk:") or ":" in value):
        ends = "; it ends with a slash" if value.endswith("/") else ""
        cause = "; it contains a blank" if re.search(r"\s", value) else ends
        raise InvalidSetting(f"not an address of a metadata store{cause}")
    hosts, _, chroot = value.partition("/")
    if "," in chroot:
        raise InvalidSetting("the chroot stands once, after the last host")
    check_ports(hosts)
    return value if value.startswith("zk:") else f"zk:{value}"


def check_ports(addresses: str) -> None:
    """Raises InvalidSetting if a port in `addresses` is not from 1 to 65535."""
    for port in re.findall(r":(\d+)(?=[,/]|$)", addresses):
        try:
            integer(port, field="port", lowest=1, highest=65_535)
        except CodecError:
            raise InvalidSetting(f"there is no port {port:.20}", allowed="ports from 1 to 65535") from None


def _listening(value: str) -> str:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        if re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?", value) is None:
            raise InvalidSetting("not an address to listen on") from None
    return value


def history_place(value: str) -> str:
    """Return the value. Raises InvalidSetting if it is neither a directory nor the address of a file store."""
    if fault := place_fault(value):
        raise InvalidSetting(fault, hidden=True)
    scheme, mark, _ = value.partition("://")
    if mark and scheme not in _SCHEMES and not scheme.startswith("fsspec+"):
        what = f"the scheme {scheme!r} is not known{suggest(scheme, _SCHEMES)}"
        raise InvalidSetting(what, allowed=f"a folder, or one of the schemes {', '.join(_SCHEMES)}")
    return value


def _web_address(value: str) -> str:
    if fault := credentials_fault(value):
        raise InvalidSetting(fault, hidden=True)
    return value


def http_address(value: str) -> str:
    """Return the value. Raises InvalidSetting if it is not an absolute http(s) address without spaces."""
    if not is_http_address(value):
        raise InvalidSetting("not an http(s) address", allowed="http(s)://host[:port][/path]")
    return value


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _one_of(parameter: str) -> AfterValidator:
    def check(value: str) -> str:
        known = choices(parameter)
        if value not in known:
            ours = STRATEGY_CLASSES.get(value.rpartition(".")[2])
            hint = f"; Pulsar's class of that name is {ours!r} here" if ours in known else suggest(value, known)
            raise InvalidSetting(f"not one of the known names{hint}", allowed=", ".join(known))
        return value

    return AfterValidator(check)


# YAML reads an unquoted `off` as false.
Off = BeforeValidator(lambda value: "off" if value is False else value)
DURATION_WORDS = AllowedWords("duration like 500ms or 1m")

Duration = Annotated[float, BeforeValidator(_duration), DURATION_WORDS]
_STORE_FORM = "ZooKeeper in Pulsar's form: zk:host1:2181,host2:2181/chroot"
StoreAddress = Annotated[str, AfterValidator(_store_address), AllowedWords(_STORE_FORM)]
# Required by all commands for the cluster.
NeededStoreAddress = Annotated[StoreAddress | None, AllowedWords(_STORE_FORM, null=False)]
Place = Annotated[
    str,
    AfterValidator(history_place),
    AllowedWords("a folder, or file://, s3://, gs://, hdfs://, abfss:// and so on, no credentials"),
]
Listening = Annotated[
    str,
    AfterValidator(_listening),
    AllowedWords("an IP address (0.0.0.0 or :: is every interface) or a host name, without a port"),
]
# An address that may be shown.
Shown = AfterValidator(_web_address)
Http = AfterValidator(http_address)
# A list that may also be written as one string with commas.
Listed = BeforeValidator(_listed)
Strategy = Annotated[str, _one_of("strategy"), AllowedWords(", ".join(STRATEGIES))]
Placement = Annotated[str, _one_of("placement"), AllowedWords(", ".join(PLACEMENTS))]
# YAML reads an unquoted 4.2 as a number.
Compat = Annotated[
    str,
    _one_of("compat"),
    BeforeValidator(lambda value: str(value) if isinstance(value, float) else value),
    AllowedWords(", ".join(RELEASES)),
]
