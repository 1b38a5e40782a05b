"""Who owns a bundle, whichever load manager the brokers run: znodes (modular), or the ownership channel (extensible).

Which of the channel's two variants holds is what the brokers run with
(`loadManagerServiceUnitStateTableViewClassName`). Where they disagree, each half of them resolves ownership in a place
of its own: no reading is the truth, so the metadata store is shown (its reads are linearisable, its writes are
compare-and-set, and no second process is needed), and `reading.obstacle` says why nothing may be acted on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bundlekeel.core.channel.states import ServiceUnit, UnitState, owner_of
from bundlekeel.core.model.errors import SnapshotError, StoreError
from bundlekeel.daemon.sources.broker_settings import BrokerConfig
from bundlekeel.ports import (
    BrokerEndpoint,
    Channel,
    ChannelVariant,
    ChannelView,
    LoadSource,
    Owner,
    Ownership,
    RawClusterView,
)

VARIANT_KEY: Final = "loadManagerServiceUnitStateTableViewClassName"
SYNCER_KEY: Final = "loadBalancerServiceUnitTableViewSyncer"
EXTENSIBLE: Final = "ExtensibleLoadManagerImpl"
# Without such brokers there is no channel; where some run it, it is followed for them.
WITH_CHANNEL: Final = ("extensible", "mixed")
PATIENCE_SECONDS: Final = 1.0


def serving(unit: ServiceUnit | None) -> Owner | None:
    """Who serves a bundle by its entry; `disabled` while it is on its way. None: no broker owns it.

    Releasing and Splitting: the source, which serves until it has closed the bundle's topics. Assigning: the
    destination, where clients are sent to wait (in a transfer the source has closed them by then).
    """
    found = owner_of(unit)
    if unit is None or found is None:
        return None
    broker = unit.source if unit.state is UnitState.RELEASING else found.broker_id
    return Owner(broker_id=broker, disabled=found.in_transit)


class ChannelOwnership:
    """`ports.Ownership` over a channel."""

    def __init__(self, channel: Channel, source: LoadSource) -> None:
        self._channel = channel
        self._source = source

    async def owner(self, bundle: str) -> Owner | None:
        """The owner by the bundle's entry, with the addresses it registered. StoreError."""
        owner = serving(await self._channel.unit(bundle))
        if owner is None:
            return None
        endpoint = (await _newest(self._source)).endpoints.get(owner.broker_id)
        if endpoint is None:  # a broker that is gone: the channel watch says so
            return owner
        return replace(owner, web_url=endpoint.web_url, service_url=endpoint.service_url, listeners=endpoint.listeners)


class OwnershipByMode:
    """`ports.Ownership`: the modular load manager's znodes or the channel, by the newest picture's mode.

    In a mixed cluster a znode, which a living broker's session holds, goes before the channel.
    """

    def __init__(self, modular: Ownership, channel: Ownership, source: LoadSource) -> None:
        self._modular = modular
        self._channel = channel
        self._source = source

    async def owner(self, bundle: str) -> Owner | None:
        """The owner right now. StoreError also before the first picture; CodecError."""
        mode = (await _newest(self._source)).mode
        if mode == "extensible":
            return await self._channel.owner(bundle)
        owner = await self._modular.owner(bundle)
        return await self._channel.owner(bundle) if owner is None and mode == "mixed" else owner


async def _newest(source: LoadSource) -> RawClusterView:
    try:
        return await source.picture()
    except SnapshotError as error:
        raise StoreError(f"which load manager the brokers run is not known yet: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantReading:
    """Where the channel is by the brokers' own settings. `variant` None: no broker has said so.

    `obstacle`: why what is read there may not be acted on, or "".
    """

    variant: ChannelVariant | None = None
    obstacle: str = ""


def read_variant(config: BrokerConfig, brokers: Iterable[str]) -> VariantReading:
    """What these brokers run with. Brokers that could not be asked do not count."""
    known = {broker: values for broker in sorted(brokers) if (values := config.values(broker)) is not None}
    variants = {broker: _variant(values) for broker, values in known.items()}
    found = set(variants.values())
    if not found:
        return VariantReading()
    if len(found) > 1:
        said = ", ".join(f"{broker}: {_WORDS[variant]}" for broker, variant in variants.items())
        return VariantReading(
            variant="metadata_store", obstacle=f"brokers keep the ownership channel in different places ({said})"
        )
    syncers = {broker: syncer for broker, values in known.items() if (syncer := _syncer(values))}
    obstacle = ""
    if syncers:
        broker, syncer = next(iter(syncers.items()))
        obstacle = f"the ownership channel is being migrated: {SYNCER_KEY}={syncer} at {broker}"
    return VariantReading(variant=found.pop(), obstacle=obstacle)


_WORDS: Final[Mapping[ChannelVariant, str]] = {"system_topic": "system topic", "metadata_store": "metadata store"}


def _variant(values: Mapping[str, str]) -> ChannelVariant:
    # Releases before 4.0 have no such key, and only the system topic.
    return "metadata_store" if "MetadataStore" in values.get(VARIANT_KEY, "") else "system_topic"


def _syncer(values: Mapping[str, str]) -> str:
    syncer = values.get(SYNCER_KEY, "").strip()
    return "" if syncer in ("", "None", "null") else syncer


def channel_brokers(picture: RawClusterView) -> dict[str, BrokerEndpoint]:
    """The brokers that take part in the channel."""
    if picture.mode == "mixed":
        return {b: item for b, item in picture.endpoints.items() if item.load_manager.endswith(EXTENSIBLE)}
    return dict(picture.endpoints) if picture.mode in WITH_CHANNEL else {}


class ChannelByVariant:
    """`ports.Channel`: the variant the brokers run with. Nothing is read before `follow` has found some that have one.

    `makers`: what makes each variant's channel; a new one is made at each switch. `service_url`: instead of the
    addresses the brokers registered, of which `prefer_tls` takes the encrypted one.
    """

    def __init__(
        self,
        makers: Mapping[ChannelVariant, Callable[[], Channel]],
        config: BrokerConfig,
        *,
        service_url: str | None = None,
        prefer_tls: bool = False,
    ) -> None:
        self._makers = makers
        self._config = config
        self._service_url = service_url
        self._prefer_tls = prefer_tls
        self._channel: Channel | None = None
        self._started_with: tuple[str, ...] | None = None
        self._made: ChannelVariant | None = None
        # A new channel counts from zero, which its followers must not notice.
        self._before = self._newest = 0
        self._turned = asyncio.Event()
        self._following = asyncio.Lock()
        self._asking: asyncio.Task[None] | None = None
        self.reading = VariantReading()

    @property
    def on(self) -> bool:
        """Whether there is a channel that is followed."""
        return self._channel is not None

    async def follow(self, picture: RawClusterView) -> None:
        """Start, switch or stop, by the brokers of this picture and what they run with; cheap when nothing changed."""
        async with self._following:
            brokers = channel_brokers(picture)
            if not brokers:
                self.reading = VariantReading()
                await self._stop()
                return
            await self._ask(picture)
            reading = read_variant(self._config, brokers)
            if reading.variant is None:  # none could be asked: what was found before still holds
                return
            self.reading = reading
            if reading.variant != self._made:
                await self._stop()
                self._channel, self._made = self._makers[reading.variant](), reading.variant
                self._turn()
            registered = {item.client_url(tls=self._prefer_tls) for item in brokers.values()} - {""}
            urls = (self._service_url,) if self._service_url else tuple(sorted(registered))
            if self._channel is not None and urls != self._started_with:
                self._started_with = urls
                await self._channel.start(urls)

    async def _ask(self, picture: RawClusterView) -> None:
        """What brokers run with, not waiting for one that hangs: what it said before holds on."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._config.refresh(picture.endpoints))
        done, _ = await asyncio.wait({self._asking}, timeout=PATIENCE_SECONDS)
        for task in done:
            task.result()

    async def start(self, service_urls: Sequence[str] = ()) -> None:
        """Nothing: `follow` starts what is needed."""

    async def view(self) -> ChannelView:
        """See the port. SnapshotError also while no channel is followed."""
        if self._channel is None:
            raise SnapshotError(self._why_off())
        view = await self._channel.view()
        self._newest = self._before + view.generation
        return replace(view, generation=self._newest)

    async def unit(self, bundle: str) -> ServiceUnit | None:
        """See the port. StoreError also while no channel is followed."""
        if self._channel is None:
            raise StoreError(self._why_off())
        return await self._channel.unit(bundle)

    async def wait_changed(self, generation: int, timeout: float) -> bool:
        """See the port; a switch of the variant counts as a change."""
        channel = self._channel
        if channel is not None:
            return await channel.wait_changed(generation - self._before, timeout)
        try:
            async with asyncio.timeout(timeout):
                await self._turned.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stop following."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        async with self._following:
            await self._stop()

    def _why_off(self) -> str:
        errors = "; ".join(f"{broker}: {error}" for broker, error in sorted(self._config.errors.items()))
        return f"no ownership channel is followed{f' ({errors})' if errors else ''}"

    async def _stop(self) -> None:
        channel, self._channel, self._made, self._started_with = self._channel, None, None, None
        if channel is not None:
            self._before = self._newest
            self._turn()
            await channel.close()

    def _turn(self) -> None:
        self._turned.set()
        self._turned = asyncio.Event()
