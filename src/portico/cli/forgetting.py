"""`portico search --forget`: what search has learnt from use is dropped, and how much that was is said."""

import asyncio
from dataclasses import asdict
from pathlib import Path

from portico.app import HABITS_FILE
from portico.cli.ending import DONE
from portico.cli.opening import Setup
from portico.cli.screen import Screen
from portico.disclosure.lines import counted
from portico.errors import PorticoError
from portico.storage.habits import Forgotten, HabitStore


async def forget(setup: Setup, screen: Screen, server: str | None) -> int:
    """Forget everything, or what was learnt in the profile or of the server; running gateways notice in seconds."""
    path = setup.config.data_dir / HABITS_FILE
    forgotten = await asyncio.to_thread(_forgotten, path, setup.profile, server)
    if forgotten is None:
        raise PorticoError(
            f"{path} cannot be written: nothing was forgotten", advice="Try again, or stop Portico and delete the file."
        )
    if forgotten.nothing and setup.profile is not None and setup.config.learning.scope == "shared":
        raise PorticoError(
            f"all profiles learn together here: nothing is kept for {setup.profile} alone, and nothing was forgotten",
            advice="Without --profile, what all have taught is forgotten.",
        )
    if screen.as_json:
        screen.data({"forgotten": asdict(forgotten), "profile": setup.profile, "server": server})
    elif forgotten.nothing:
        screen.text("Nothing was learnt yet that could be forgotten.")
    else:
        screen.text(_told(forgotten))
    return DONE


def _forgotten(path: Path, profile: str | None, server: str | None) -> Forgotten | None:
    if not any(path.parent.glob(f"{path.name}*")):
        return Forgotten()
    store = HabitStore(path)
    try:
        return store.forget(profile, server)
    finally:
        store.close()


def _told(forgotten: Forgotten) -> str:
    aside = f" Deleted {counted(forgotten.unreadable, 'file')} that could not be read." if forgotten.unreadable else ""
    return (
        f"Forgot {counted(forgotten.followed, 'call')} after a search, {counted(forgotten.together, 'pair')} of "
        f"tools used together and the use of {counted(forgotten.used, 'tool')}.{aside}"
    )
