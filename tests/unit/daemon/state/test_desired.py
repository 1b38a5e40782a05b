"""What people want, stored by sidecars of two versions at once: neither loses what only the other one knows."""

from __future__ import annotations

import zlib

import msgspec

from bundlekeel.daemon.state.documents import SCHEMA, Desired, OperatorRequest, Pause, decode, encode, rewritten
from bundlekeel.daemon.state.shared_state import DESIRED
from tests.support.world import FakeCluster, FakeSidecar

REQUEST = OperatorRequest(by="ann", reason="new disks", since_ms=5)


class OldDesired(msgspec.Struct, frozen=True, kw_only=True):
    """The document as the release before this one reads and writes it."""

    schema: int = SCHEMA
    mode: str | None = None
    pause: Pause | None = None
    pinned: dict[str, int] = {}


class NewWish(OperatorRequest, frozen=True, kw_only=True):
    """A wish with a field that this release does not know."""

    ticket: str = ""


class NewDesired(Desired, frozen=True, kw_only=True):
    """The document of a release to come: a field more, and one more inside each drain."""

    schema: int = SCHEMA + 1
    drains: dict[str, NewWish] = msgspec.field(default_factory=dict)  # type: ignore[assignment]
    holidays: list[str] = msgspec.field(default_factory=list)


def test_the_release_before_reads_mode_pause_and_pins() -> None:
    """An emergency stop reaches older sidecars too, and theirs reaches us."""
    pause = Pause(reason="fire", by="ann", since_ms=1)
    ours = Desired(mode="recommend", pause=pause, pinned={"t/ns/0x0_0x1": 0}, drains={"b1:8080": REQUEST})
    old = decode(encode(ours), OldDesired)
    assert old == OldDesired(mode="recommend", pause=pause, pinned={"t/ns/0x0_0x1": 0})
    assert decode(encode(old), Desired) == Desired(mode="recommend", pause=pause, pinned={"t/ns/0x0_0x1": 0})


def test_what_a_newer_release_stored_stays_when_we_write() -> None:
    """Its fields, its schema, and the fields inside entries that we do not touch."""
    newer = NewDesired(
        mode="act",
        drains={
            "b1:8080": NewWish(by="ann", reason="new disks", since_ms=5, ticket="OPS-1"),
            "b2:8080": NewWish(by="bob", reason="old disks", since_ms=6, ticket="OPS-2"),
        },
        holidays=["2026-12-25"],
    )
    stored = encode(newer)
    seen = decode(stored, Desired)
    assert seen is not None
    other = OperatorRequest(by="cid", reason="fans", since_ms=9)
    wanted = msgspec.structs.replace(seen, mode="recommend", drains={"b1:8080": seen.drains["b1:8080"], "b3:1": other})
    again = decode(rewritten(stored, wanted), NewDesired)
    assert again == msgspec.structs.replace(
        newer,
        mode="recommend",
        drains={"b1:8080": newer.drains["b1:8080"], "b3:1": NewWish(by="cid", reason="fans", since_ms=9)},
    )


def test_a_pause_of_ours_does_not_inherit_what_belonged_to_another() -> None:
    """An entry that is changed is changed as a whole."""
    stored = encode({"pause": {"reason": "a", "by": "b", "since_ms": 1, "only": ["t/ns"]}, "future": 1})
    wanted = Desired(pause=Pause(reason="fire", by="ann", since_ms=2))
    made = msgspec.json.decode(zlib.decompress(rewritten(stored, wanted)))
    assert made["pause"] == {"reason": "fire", "by": "ann", "since_ms": 2, "until_ms": 0}
    assert made["future"] == 1


def test_a_document_nobody_can_read_is_replaced() -> None:
    """There is nothing to keep in it."""
    assert decode(rewritten(b"torn", Desired(mode="observe")), Desired) == Desired(mode="observe")
    assert decode(rewritten(b"", Desired(mode="observe")), Desired) == Desired(mode="observe")


def test_all_pauses_are_listed_by_scope() -> None:
    """The one of everything has the empty scope."""
    one, two = Pause(reason="a", by="b", since_ms=1), Pause(reason="c", by="d", since_ms=2)
    assert Desired(pause=one, pauses={"tenant:shop": two}).all_pauses() == {"": one, "tenant:shop": two}
    assert Desired(pauses={"tenant:shop": two}).all_pauses() == {"tenant:shop": two}


async def test_two_sidecars_of_different_releases_share_one_document() -> None:
    """The newer one stores, ours changes something else, the newer one finds everything again."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    newer = NewDesired(holidays=["2026-12-25"], cordons={"b2:8080": REQUEST})
    await sidecar.coordination.write_shared(DESIRED, encode(newer), version=None)
    await sidecar.shared_state.change_desired(lambda desired: msgspec.structs.replace(desired, mode="recommend"))
    document = await sidecar.coordination.read(DESIRED)
    assert document is not None
    again = decode(document.data, NewDesired)
    assert again is not None
    assert (again.mode, again.holidays, again.cordons) == ("recommend", ["2026-12-25"], {"b2:8080": REQUEST})
