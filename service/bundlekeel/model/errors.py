"""All errors of Bundlekeel. The class shows what the caller may do; library errors are converted to these classes.

BundlekeelError
  ConfigError          settings are wrong: `field`, `value`, `allowed` (exit code 2)
    ThresholdsError    a document of calibrated thresholds cannot be used: `code`
    WrongCluster       `cluster` or `configuration_store` differs from the brokers' settings: the process exits
  CodecError           one record could not be read: that record is ignored, and the cycle continues
  HistoryError         recorded history is torn, has a gap, or was written by another release
  SnapshotError        there is no usable snapshot of the cluster: try again in the next cycle
  StoreError           the metadata store did not respond in time or is suspended: try again later
    LeadershipLost     the epoch has ended: stop, become a follower, write nothing more
    StaleWrite         another process changed the node since it was read: read and decide again
    StoreMigrated      the brokers move their metadata to another store, or have moved it: `code`
  AdminApiError        a broker's admin API call; `status`, `url`, `reason`
    AdminTimeout       the outcome is unknown: read the ownership again before a retry
    AdminUnreachable   the request was certainly not sent: retry
      ConnectionRefused  no process accepts connections at the broker's address
    AdminUnauthorized  401: credentials or rights are missing
    AdminRefused       4xx: the broker rejected the request (404, 409, 412)
    AdminFault         5xx, 408, 429 or 499: the outcome is unknown
    RedirectLoop       more than five redirects, or the same place twice
    UnknownHostRedirect  a redirect to a host that is not a known broker: not followed, token not sent
  TooSlow              a read by an operator took too long; nothing was changed
  NotificationError    a notification was rejected: `again` shows whether a retry can help
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


class BundlekeelError(Exception):
    """Base class of all errors that Bundlekeel raises itself."""


class ConfigError(BundlekeelError):
    """A setting is unknown, of the wrong type, out of range or contradicts another one.

    `origin`: where the setting is from: `file:NAME:LINE`, `env:NAME`, `secret:FILE` or `cli`; "" if unknown.
    """

    def __init__(
        self, message: str, *, field: str = "", value: object = None, allowed: str = "", origin: str = ""
    ) -> None:
        super().__init__(message)
        self.field = field
        self.value = value
        self.allowed = allowed
        self.origin = origin


class ThresholdsError(ConfigError):
    """Thresholds that the recalibration proposed cannot be read or used; `code` is a name of `model.codes.Code`."""

    def __init__(self, message: str, *, code: str, field: str = "", value: object = None, allowed: str = "") -> None:
        super().__init__(message, field=field, value=value, allowed=allowed)
        self.code = code


class WrongCluster(ConfigError):
    """The setting `cluster` or `configuration_store` differs from the brokers' settings.

    Sidecars with different names for one cluster would elect two leaders.
    """


class CodecError(BundlekeelError):
    """A record of a broker or of another external source cannot be decoded; `code` is a name of `model.codes.Code`."""

    def __init__(self, message: str, *, code: str, field: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.field = field


class HistoryError(BundlekeelError):
    """The recorded history of cycles cannot be used: incomplete file, gap, or written by a newer release."""


class SnapshotError(BundlekeelError):
    """There is no usable snapshot of the cluster at this moment."""


class StoreError(BundlekeelError):
    """The metadata store did not respond in time, is suspended, or rejected the request.

    `code`: a name of `model.codes.Code`.
    """

    code = "StoreUnavailable"


class LeadershipLost(StoreError):
    """This sidecar may not write as leader any more: its epoch (term as leader) has ended, or its lease has expired."""


class StaleWrite(StoreError):
    """A compare-and-set of a node in the metadata store failed, because the node has changed since it was read."""


class StoreMigrated(StoreError):
    """The brokers move their metadata to another store, or have moved it (PIP-454)."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class AdminApiError(BundlekeelError):
    """A call of a broker's admin REST API did not succeed.

    `status`: HTTP status, None without a response. `outcome_unknown`: the request may have taken effect. Then the
    caller must read the state again before a retry.
    """

    outcome_unknown = False

    def __init__(self, message: str, *, status: int | None = None, url: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.url = url
        self.reason = reason


class AdminTimeout(AdminApiError):
    """The request was sent to the broker, but no response came in time."""

    outcome_unknown = True


class AdminUnreachable(AdminApiError):
    """No connection could be made: the request was not sent."""


class ConnectionRefused(AdminUnreachable):
    """The host refused the connection: no process accepts connections at the broker's address."""


class AdminUnauthorized(AdminApiError):
    """401 or 403: the token is missing, wrong or lacks the right."""


class AdminRefused(AdminApiError):
    """The broker rejected the request: 404, 409, 412, another 4xx, or a 500 that proves that nothing was done."""


class AdminFault(AdminApiError):
    """The broker failed with 5xx, or a proxy with 408, 429 or 499; the request may have taken effect."""

    outcome_unknown = True


class RedirectLoop(AdminApiError):
    """A request was redirected more than five times, or twice to the same URL."""

    outcome_unknown = True


class UnknownHostRedirect(AdminApiError):
    """A broker redirected the request to a host that is not a known broker; the redirect was not followed."""

    outcome_unknown = True


class NotFound(BundlekeelError):
    """The requested broker, bundle, topic or plan is unknown."""


# Codes of conflicts (HTTP 409) and forbidden requests (403) that have no code of `model.codes.Code`.
CONFLICTS: Final[Mapping[str, str]] = {
    "changed": "the inputs of a plan, a proposal or the adopted thresholds changed meanwhile: read them again",
    "wrong-state": "the state of the task or review does not allow the request",
    "nothing-to-do": "the plan has no moves and no splits",
    "last-broker": "all other brokers are drained or cordoned",
    "no-channel": "the cluster has no ownership channel (modular load manager)",
    "refused": "refused for several reasons, or for one without a code: `difference` lists them",
}
FORBIDDEN: Final[Mapping[str, str]] = {
    "above-ceiling": "the settings file does not allow the requested mode",
    "what-if": "the plan is a what-if: it assumes other brokers or traffic than at present",
    "own-proposal": "the operator who proposed the change cannot approve it",
    "calibration-off": "`calibration.mode` of the settings is `off`",
}
REASONS: Final[Mapping[str, str]] = {**CONFLICTS, **FORBIDDEN}


class Conflict(BundlekeelError):
    """The present state does not allow the request (HTTP 409).

    `difference`: the reasons, as text. `code`: a name of `model.codes.Code` or one of `REASONS`; "" if it is not
    the response to a request.
    """

    def __init__(self, message: str, *, code: str = "", difference: list[str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.difference = difference or []


class Forbidden(BundlekeelError):
    """The mode or the settings do not allow the request (HTTP 403).

    The message contains the next step. `code`: as in `Conflict`.
    """

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class TooSlow(BundlekeelError):
    """A request that only reads timed out, because the metadata store or brokers took too long."""


class NotificationError(BundlekeelError):
    """A notification did not reach its receiver. `again`: whether a retry can help.

    The message never contains the receiver's address, which is a secret.
    """

    def __init__(self, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.again = again
