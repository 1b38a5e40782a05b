"""The one error tree. Names say what the caller may do; adapters translate library errors into these.

BundlekeelError
  ConfigError          settings are wrong; `field`, `value` and `allowed` say where (exit code 2)
    ThresholdsError    a document of calibrated thresholds cannot be used; `code` says why
    WrongCluster       `cluster` or `configuration_store` is not what the brokers run with: the process ends
  CodecError           one record could not be read; that record is left out, never the cycle
  HistoryError         recorded history is torn, has a gap, or was written by another release
  SnapshotError        no usable snapshot of the cluster this time; try next cycle
  StoreError           the metadata store did not answer in time or is suspended; try again later
    LeadershipLost     our epoch is over: stop, drop to follower, write nothing more
    StaleWrite         somebody changed the node since it was read: read again, decide again
    StoreMigrated      the brokers move their metadata to another store, or have moved it; `code` says which
  AdminApiError        a broker's admin API call; `status`, `url`, `reason`
    AdminTimeout       outcome unknown: re-read ownership, never repeat blindly
    AdminUnreachable   the request was certainly not sent: may be retried
    AdminUnauthorized  401: credentials or rights are missing
    AdminRefused       4xx: the broker said no (404, 409, 412)
    AdminFault         5xx, 408, 429 or 499: outcome unknown
    RedirectLoop       more than five hops, or the same place twice
    ForeignRedirect    a redirect to a host that is no known broker: not followed, token not sent
  TooSlow              a read of an operator took too long; nothing was changed
  NotificationError    a notification was not taken; `again` says whether trying once more may help
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


class BundlekeelError(Exception):
    """Root of every error this package raises on purpose."""


class ConfigError(BundlekeelError):
    """A setting is unknown, of the wrong type, out of range or contradicts another one. `origin`: where it was written,
    `file:NAME:LINE`, `env:NAME`, `secret:FILE` or `cli`, where that is known."""

    def __init__(
        self, message: str, *, field: str = "", value: object = None, allowed: str = "", origin: str = ""
    ) -> None:
        super().__init__(message)
        self.field = field
        self.value = value
        self.allowed = allowed
        self.origin = origin


class ThresholdsError(ConfigError):
    """A document of calibrated thresholds cannot be read or used; `code` is a name of `core.model.codes.Code`."""

    def __init__(self, message: str, *, code: str, field: str = "", value: object = None, allowed: str = "") -> None:
        super().__init__(message, field=field, value=value, allowed=allowed)
        self.code = code


class WrongCluster(ConfigError):
    """`cluster` (two names would mean two leaders) or `configuration_store` is not what the brokers run with."""


class CodecError(BundlekeelError):
    """A record from outside could not be decoded; `code` is a name of `core.model.codes.Code`."""

    def __init__(self, message: str, *, code: str, field: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.field = field


class HistoryError(BundlekeelError):
    """Recorded history cannot be used: a torn file, a gap, or a release newer than this one wrote it."""


class SnapshotError(BundlekeelError):
    """There is no usable snapshot of the cluster at this moment."""


class StoreError(BundlekeelError):
    """The metadata store did not answer in time, is suspended, or refused the request. `code`: a name of
    `core.model.codes.Code`."""

    code = "StoreUnavailable"


class LeadershipLost(StoreError):
    """A fenced write carried an epoch that is over, or our own deadline has passed."""


class StaleWrite(StoreError):
    """Compare-and-set failed: the node changed since it was read."""


class StoreMigrated(StoreError):
    """The brokers move their metadata to another store, or have moved it (PIP-454)."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class AdminApiError(BundlekeelError):
    """A call of a broker's admin REST API did not succeed.

    `status` is the HTTP status or None when there was no answer; `outcome_unknown` says whether the
    request may have taken effect, in which case it must be re-read and never blindly repeated.
    """

    outcome_unknown = False

    def __init__(self, message: str, *, status: int | None = None, url: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.url = url
        self.reason = reason


class AdminTimeout(AdminApiError):
    """No answer within the limit after the request left."""

    outcome_unknown = True


class AdminUnreachable(AdminApiError):
    """No connection could be made: the request was not sent."""


class AdminUnauthorized(AdminApiError):
    """401 or 403: the token is missing, wrong or lacks the right."""


class AdminRefused(AdminApiError):
    """The broker refused: 404, 409, 412 or another 4xx, or a 500 that says so before anything was done."""


class AdminFault(AdminApiError):
    """The broker failed with 5xx, or a proxy with 408, 429 or 499; the request may have taken effect."""

    outcome_unknown = True


class RedirectLoop(AdminApiError):
    """More than five redirects, or the same place twice."""

    outcome_unknown = True


class UnknownHostRedirect(AdminApiError):
    """A redirect to a host that is no known broker; it was not followed."""

    outcome_unknown = True


class NotFound(BundlekeelError):
    """What was asked for (a broker, bundle, topic, plan) is not known here."""


# Codes of a conflict (HTTP 409), and of what is forbidden (403), where no code of `core.model.codes.Code` says it.
CONFLICTS: Final[Mapping[str, str]] = {
    "changed": "the inputs of a plan, a proposal or the adopted thresholds changed meanwhile: look again",
    "wrong-state": "a task or a review is in a state that does not allow it",
    "nothing-to-do": "the plan has no moves and no splits",
    "last-broker": "no other broker is open to bundles",
    "no-channel": "the cluster has no ownership channel (modular load manager)",
    "refused": "refused for several reasons, or for one without a code: `difference` lists them",
}
FORBIDDEN: Final[Mapping[str, str]] = {
    "above-ceiling": "the settings file does not allow the mode that was asked for",
    "what-if": "the plan is of brokers or traffic that are not as they are",
    "own-proposal": "who proposed it may not approve it",
    "calibration-off": "`calibration.mode` of the settings is `off`",
}
REASONS: Final[Mapping[str, str]] = {**CONFLICTS, **FORBIDDEN}


class Conflict(BundlekeelError):
    """It cannot be done as things are now. `difference` has the reasons, as text; `code` is a name of
    `core.model.codes.Code` or one of `REASONS`, and empty where no request is answered with it."""

    def __init__(self, message: str, *, code: str = "", difference: list[str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.difference = difference or []


class Forbidden(BundlekeelError):
    """Not allowed in this mode or by the settings' ceiling; the message says what to do instead. `code` as `Conflict`
    has it."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class TooSlow(BundlekeelError):
    """A read was given up because the stores or brokers that it needs took too long."""


class NotificationError(BundlekeelError):
    """A notification did not reach its receiver. The message never holds an address: it is a secret."""

    def __init__(self, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.again = again
