"""A splitter over brokers, store and clock in memory, for tests of splits."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from bundlekeel.leader.execution.split_intents import SplitOutcome
from bundlekeel.leader.execution.splits import Splitter
from bundlekeel.model.load import TopicLoad
from bundlekeel.model.names import FULL_UPPER
from bundlekeel.model.plan import Split
from bundlekeel.planning.splitting.children import SplitChildren
from tests.support.executor_bench import B, World
from tests.support.extensible_brokers import ExtensibleModel
from tests.support.memory_coordination import MemoryCoordination

BUNDLE = "t/n/0x00000000_0x40000000"
EDGES = [0, 0x40000000, FULL_UPPER]
POSITION = 0x18000000
CHILDREN = ("t/n/0x00000000_0x18000000", "t/n/0x18000000_0x40000000")


def topic(hash_: int, rate: float, sessions: int = 1) -> TopicLoad:
    """Return a topic with this hash. `rate`: messages/s in and out, a hundred bytes each."""
    name = f"persistent://t/n/{hash_:x}"
    return TopicLoad(topic=name, hash=hash_, traffic=(rate, rate, rate * 100, rate * 100), sessions=sessions)


# Four topics, of which the last two are hot. A split in the middle of the range would leave both in the lower
# child, a split in the middle of the topics would leave both in the upper child.
TWO_HOT = (topic(0x01000000, 1), topic(0x02000000, 1), topic(0x10000000, 50), topic(0x20000000, 49))


class Bench(World):
    """A splitter that leads epoch 1 over three brokers; B owns the bundle with its two hot topics."""

    def __init__(
        self,
        *topics: TopicLoad,
        coordination: type[MemoryCoordination] = MemoryCoordination,
        mode: str = "modular",
        model: type[ExtensibleModel] = ExtensibleModel,
    ) -> None:
        super().__init__(mode, model, coordination)
        self.model.add_loads(BUNDLE, *(topics or TWO_HOT))
        self.model.own(BUNDLE, B)
        self.metadata.bundle_boundaries["t/n"] = list(EDGES)
        self.model.after_split = self.divided
        self.prepared: list[SplitChildren] = []
        self.world = self.ports()
        self.splitter = Splitter(ports=self.world, term=self.term, prepare=self.prepared.append)

    def divided(self, _bundle: str, children: tuple[str, ...]) -> None:
        """Store the new boundaries, as the brokers do after a split."""
        edges = {int(child.rpartition("_")[2], 16) for child in children}
        self.metadata.bundle_boundaries["t/n"] = sorted(edges | set(self.metadata.bundle_boundaries["t/n"]))

    async def split(self, rule: str = "hot", **changes: object) -> SplitOutcome:
        """Split the bundle."""
        max_bundles = cast(int, changes.pop("max_bundles", 128))
        whole = Split(bundle=BUNDLE, broker=B, rule=rule, value=2.0, limit=1.0, hits=0, at=(), halves=False)
        split = replace(whole, **changes)  # type: ignore[arg-type]
        return await self.splitter.split(split, max_bundles=max_bundles, cycle_id="9")

    def calls(self) -> int:
        """Number of split requests."""
        return sum(call[0] == "split" for call in self.admin.calls)

    async def intents(self) -> list[str]:
        """Return the paths of the stored split intents."""
        return [document.path for document in await self.coordination.read_tree("splits")]
