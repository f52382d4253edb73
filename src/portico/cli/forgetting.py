"""`portico search --forget`: what use has taught, and the plans that worked, are dropped; how much that was is said."""

import asyncio
from dataclasses import asdict
from pathlib import Path

from portico.app import HABITS_FILE, RECORD_FILE
from portico.cli.ending import DONE
from portico.cli.opening import Setup
from portico.cli.screen import Screen
from portico.disclosure.lines import counted
from portico.errors import PorticoError
from portico.storage.habits import Forgotten, HabitStore
from portico.storage.record import Record


async def forget(setup: Setup, screen: Screen, server: str | None) -> int:
    """Forget everything, or what was learnt in the profile or of the server; running gateways notice in seconds.

    A plan is of several servers, so plans stay where only one server is to be forgotten.
    """
    path = setup.config.data_dir / HABITS_FILE
    forgotten = await asyncio.to_thread(_forgotten, path, setup.profile, server)
    if forgotten is None:
        raise PorticoError(
            f"{path} cannot be written: nothing was forgotten", advice="Try again, or stop Portico and delete the file."
        )
    plans = await _plans(setup) if server is None else 0
    if forgotten.nothing and not plans and setup.profile is not None and setup.config.learning.scope == "shared":
        raise PorticoError(
            f"all profiles learn together here: nothing is kept for {setup.profile} alone, and nothing was forgotten",
            advice="Without --profile, what all have taught is forgotten.",
        )
    if screen.as_json:
        screen.data({"forgotten": {**asdict(forgotten), "plans": plans}, "profile": setup.profile, "server": server})
    elif forgotten.nothing and not plans:
        screen.text("Nothing was learnt yet that could be forgotten.")
    else:
        screen.text(_told(forgotten, plans))
    return DONE


def _forgotten(path: Path, profile: str | None, server: str | None) -> Forgotten | None:
    if not any(path.parent.glob(f"{path.name}*")):
        return Forgotten()
    store = HabitStore(path)
    try:
        return store.forget(profile, server)
    finally:
        store.close()


async def _plans(setup: Setup) -> int:
    """How many plans were forgotten."""
    url = setup.config.database_url
    path = setup.config.data_dir / RECORD_FILE
    if url is None and not path.exists():
        return 0
    record = Record(url.get_secret_value() if url else None, path)
    try:
        return await record.forget_plans(setup.profile)
    finally:
        await record.close()


def _told(forgotten: Forgotten, plans: int) -> str:
    aside = f" Deleted {counted(forgotten.unreadable, 'file')} that could not be read." if forgotten.unreadable else ""
    worked = f", {counted(plans, 'plan')} that worked" if plans else ""
    return (
        f"Forgot {counted(forgotten.followed, 'call')} after a search, {counted(forgotten.together, 'pair')} of "
        f"tools used together{worked} and the use of {counted(forgotten.used, 'tool')}.{aside}"
    )
