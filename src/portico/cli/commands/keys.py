"""`portico keys`: make, list, rotate and revoke keys.

--json: add and rotate `{"key" (its text, shown once), "id", "name", "profiles", "read_only",
"expires", "replaced"?: [id]}`; list `{"keys": [{"id", "name", "state", "profiles", "read_only",
"created", "expires", "last_used"}]}`; revoke `{"revoked": [id]}`. Times are ISO times or null.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from portico.auth.key_administration import add_key, parse_grace, revoke_keys, rotate_key
from portico.auth.keys import get_key_state, parse_duration
from portico.cli.columns import show_rows, texts
from portico.cli.exit import EXIT_OK, print_note
from portico.cli.keys_commands import AddKeyOptions, RotateKeyOptions
from portico.cli.options import ConfigOptions
from portico.cli.screen import Screen
from portico.config import Config
from portico.gateway.data_folder import open_key_store
from portico.profiles.json_objects import format_age, to_iso_time
from portico.storage.key_store import KeyStore
from portico.storage.rows import KeyRow

_COLUMNS = texts("name", "id", "state", "opens", "rights", "ends", "last used")


async def run_add(name: str, options: AddKeyOptions) -> int:
    setup, screen = options.load()
    profiles = tuple(dict.fromkeys(options.profile or ()))
    for profile in profiles:
        setup.config.resolve_profile(profile)
    lifetime_s = parse_duration(options.expires) if options.expires else None
    async with _open(setup.config) as store:
        key, text, is_first = await add_key(
            store,
            name,
            profiles=profiles,
            is_read_only=options.read_only,
            lifetime_s=lifetime_s,
        )
    _show_new_key(screen, key, text)
    if is_first and setup.config.gateway.token is None and not screen.as_json:
        print_note("From now on every request to this gateway over HTTP needs a key.")
    return EXIT_OK


async def run_list(options: ConfigOptions) -> int:
    setup, screen = options.load()
    now = time.time()
    async with _open(setup.config) as store:
        keys = await store.load()
    if screen.as_json:
        screen.write_json({"keys": [_to_json(key, now) for key in keys]})
    elif keys:
        show_rows(screen, _COLUMNS, [_build_row(key, now) for key in keys])
    else:
        screen.write_text("There are no keys. `portico keys add NAME` makes one.")
    return EXIT_OK


async def run_rotate(name: str, options: RotateKeyOptions) -> int:
    setup, screen = options.load()
    grace_s = parse_grace(options.grace)
    async with _open(setup.config) as store:
        key, text, replaced = await rotate_key(
            store,
            name,
            grace_s=grace_s,
            lifetime_s=parse_duration(options.expires) if options.expires else None,
        )
    _show_new_key(screen, key, text, replaced=[earlier.id for earlier in replaced])
    if grace_s and not screen.as_json:
        print_note(f"The old key stays valid for {options.grace}.")
    return EXIT_OK


async def run_revoke(name: str, options: ConfigOptions) -> int:
    setup, screen = options.load()
    async with _open(setup.config) as store:
        revoked = await revoke_keys(store, name)
    if screen.as_json:
        screen.write_json({"revoked": [key.id for key in revoked]})
    else:
        ids = ", ".join(key.id for key in revoked)
        screen.write_text(f"{revoked[0].name} is out ({ids}).")
    return EXIT_OK


@asynccontextmanager
async def _open(config: Config) -> AsyncGenerator[KeyStore]:
    store = open_key_store(config)
    try:
        yield store
    finally:
        await store.close()


def _show_new_key(
    screen: Screen, key: KeyRow, text: str, replaced: list[str] | None = None
) -> None:
    if screen.as_json:
        answer = {
            "key": text,
            "id": key.id,
            "name": key.name,
            "profiles": list(key.profiles),
            "read_only": key.is_read_only,
            "expires": _to_time(key.expires_at),
        }
        if replaced:
            answer["replaced"] = replaced
        screen.write_json(answer)
        return
    screen.write_text(text)
    print_note(f"The key of {key.name}. It is shown once: only a digest is kept.")


def _build_row(key: KeyRow, now: float) -> tuple[str, ...]:
    return (
        key.name,
        key.id,
        get_key_state(key, now),
        ", ".join(key.profiles) or "everything",
        "read-only" if key.is_read_only else "",
        _to_time(key.expires_at) or "never",
        f"{format_age(key.used_at)} ago" if key.used_at else "never",
    )


def _to_time(at: float | None) -> str | None:
    if at is None:
        return None
    return to_iso_time(at)


def _to_json(key: KeyRow, now: float) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "state": get_key_state(key, now),
        "profiles": list(key.profiles),
        "read_only": key.is_read_only,
        "created": to_iso_time(key.created_at),
        "expires": _to_time(key.expires_at),
        "last_used": _to_time(key.used_at),
    }
