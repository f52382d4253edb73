"""Pins of one gateway, and their exchange between gateways."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from portico.storage.gateway_store import GatewayStore
from portico.storage.pin_store import PinRow, PinStore


def pin(digest: str, at: float = 1.0, person: str = "", name: str = "send") -> PinRow:
    return PinRow("mail", "tool", name, digest, digest.encode(), at, person)


def completer(store: PinStore) -> Callable[[Sequence[PinRow]], Awaitable[Sequence[PinRow]]]:
    async def complete(rows: Sequence[PinRow]) -> Sequence[PinRow]:
        return store.complete(rows)

    return complete


async def exchange(shared: GatewayStore, store: PinStore, origin: str) -> tuple[int, int]:
    """Do what a gateway does; returns how many pins it got, and how many were overruled."""
    own = store.list_pins(["mail"])
    found = await shared.exchange_pins(["mail"], own, completer(store), origin=origin)
    store.save(found.received)
    store.drop(found.overruled)
    return len(found.received), len(found.overruled)


async def test_what_was_seen_first_overrules_what_was_seen_later(tmp_path: Path) -> None:
    shared = GatewayStore(None, tmp_path / "shared.sqlite3")
    one = PinStore(tmp_path / "one.sqlite3")
    two = PinStore(tmp_path / "two.sqlite3")
    one.save([pin("a"), pin("c", name="count")])
    two.save([pin("b"), pin("c", name="count")])
    assert await exchange(shared, one, "one") == (0, 0)
    assert await exchange(shared, two, "two") == (1, 1)
    for store in (one, two):
        assert store.load(["mail"])["mail"].trusted == {
            ("tool", "send", "a"),
            ("tool", "count", "c"),
        }
    # A person's word is not overruled.
    two.save([pin("b", 2.0, "ana")])
    assert await exchange(shared, two, "two") == (0, 0)
    assert await exchange(shared, one, "one") == (1, 0)
    pins = one.load(["mail"])["mail"]
    assert pins.latest["tool", "send"] == "b"
    assert ("tool", "send", "b") in pins.looked_at
    assert one.load_definitions("mail", {("tool", "send"): "b"}) == {("tool", "send"): b"b"}
    # A look at what was trusted on first sight reaches the others too.
    one.save([pin("c", 3.0, "ana", "count")])
    await exchange(shared, one, "one")
    assert await exchange(shared, two, "two") == (1, 0)
    assert ("tool", "count", "c") in two.load(["mail"])["mail"].looked_at
    await shared.close()
    one.close()
    two.close()


def test_a_look_is_not_forgotten_when_the_same_is_seen_first_again(tmp_path: Path) -> None:
    store = PinStore(tmp_path / "pins.sqlite3")
    store.save([pin("a", 1.0, "ana")])
    store.save([pin("a", 2.0)])
    assert store.load()["mail"].looked_at == {("tool", "send", "a")}
    store.copy_server("mail", "post")
    assert store.load()["post"].looked_at == {("tool", "send", "a")}
    store.close()
