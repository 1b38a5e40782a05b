"""All calls of quota groups that change a cluster. As for `ports.commands`, few modules may import them."""

from __future__ import annotations

from typing import Protocol

from bundlekeel.ports.commands import Permit
from bundlekeel.quotas.rules.rate_plan import PolicyKey, Rate
from bundlekeel.quotas.rules.resource_group_plan import ResourceGroup


class QuotaCommands(Protocol):
    """Calls that change rates and ResourceGroups. They raise the same errors as `BrokerCommands`."""

    async def topic_rate(self, place: PolicyKey, *, permit: Permit) -> Rate | None:
        """Return the rate in a topic's own policy; None: it has no policy.

        This read can change the cluster: the broker assigns the topic's bundle if no broker owns it. Raises
        AdminRefused if the topic does not exist (404) or topic policies are disabled (405).
        """

    async def set_topic_rate(self, place: PolicyKey, rate: Rate | None, *, permit: Permit) -> None:
        """Set a topic's own policy; None removes it."""

    async def set_resource_group(self, name: str, group: ResourceGroup | None, *, permit: Permit) -> None:
        """Create or change a ResourceGroup; None removes it. Raises AdminRefused (412) while namespaces use it."""

    async def attach(self, namespace: str, name: str, *, permit: Permit) -> None:
        """Attach a namespace to a ResourceGroup; "": detach it. Raises AdminRefused (412) if the group is unknown."""
