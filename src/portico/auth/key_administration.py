"""Making, rotating and revoking keys in their store, for the command line and REST."""

import time

from portico.auth.keys import MAX_KEYS, create_key, get_key_state, parse_duration
from portico.errors import PorticoError, UnknownName
from portico.storage.key_store import KeyStore
from portico.storage.rows import KeyRow


async def add_key(
    store: KeyStore,
    name: str,
    *,
    profiles: tuple[str, ...] = (),
    is_read_only: bool = False,
    lifetime_s: float | None = None,
) -> tuple[KeyRow, str, bool]:
    """Make and store a key; return it, its text, and whether it is the first one.

    Raises PorticoError for a name that has a valid key, and where there are too many.
    """
    now = time.time()
    existing = await store.load()
    if any(key.name == name for key in select_valid_keys(existing, now)):
        raise PorticoError(
            f"there is a key of the name {name} already",
            advice=f"`portico keys rotate {name}` makes a new one in its place.",
        )
    if len(existing) >= MAX_KEYS:
        raise PorticoError(f"there are {MAX_KEYS:,} keys already", advice="Rotate others.")
    expires_at = now + lifetime_s if lifetime_s is not None else None
    key, text = create_key(
        name, now, profiles=profiles, is_read_only=is_read_only, expires_at=expires_at
    )
    await store.add(key)
    return key, text, not existing


async def rotate_key(
    store: KeyStore, name: str, *, grace_s: float = 0.0, lifetime_s: float | None = None
) -> tuple[KeyRow, str, list[KeyRow]]:
    """Make a key in place of the valid ones of a name, or of the one with this id; return it, its
    text, and those it replaces, which end after `grace_s`.

    It has their rights, and lives as long as the last one did, unless `lifetime_s` says otherwise.
    Raises UnknownName.
    """
    now = time.time()
    replaced = find_valid_keys(await store.load(), name, now)
    old = replaced[-1]
    if lifetime_s is None and old.expires_at is not None:
        lifetime_s = old.expires_at - old.created_at
    expires_at = now + lifetime_s if lifetime_s is not None else None
    key, text = create_key(
        old.name, now, profiles=old.profiles, is_read_only=old.is_read_only, expires_at=expires_at
    )
    await store.add(key)
    for earlier in replaced:
        end = now + grace_s
        if earlier.expires_at is not None:
            end = min(end, earlier.expires_at)
        await store.end(earlier.id, expires_at=end)
    return key, text, replaced


def parse_grace(text: str) -> float:
    """Return how long a replaced key stays valid: `1h`, `2d`, or `0`. Raises PorticoError."""
    return 0.0 if text.strip() == "0" else parse_duration(text)


async def revoke_keys(store: KeyStore, name: str) -> list[KeyRow]:
    """Revoke the valid keys of a name, or the one with this id; raises UnknownName."""
    now = time.time()
    revoked = find_valid_keys(await store.load(), name, now)
    for key in revoked:
        await store.end(key.id, revoked_at=now)
    return revoked


def select_valid_keys(keys: list[KeyRow], now: float) -> list[KeyRow]:
    return [key for key in keys if get_key_state(key, now) == "valid"]


def find_valid_keys(keys: list[KeyRow], name: str, now: float) -> list[KeyRow]:
    """Return the valid keys of a name, or the one with this id; raises UnknownName."""
    found = [key for key in select_valid_keys(keys, now) if name in (key.name, key.id)]
    if not found:
        names = sorted({key.name for key in select_valid_keys(keys, now)})
        advice = f"Valid keys: {', '.join(names) or 'none'}."
        raise UnknownName(f"there is no valid key {name}", nearest=tuple(names), advice=advice)
    return found
