"""`portico search --forget`: what searches and calls have taught is dropped, and how much that was is said."""

from dataclasses import asdict

from portico.app import HABITS_FILE
from portico.cli.ending import DONE
from portico.cli.opening import Setup
from portico.cli.screen import Screen, counted
from portico.errors import PorticoError
from portico.storage.habits import Forgotten, HabitStore


async def forget(setup: Setup, screen: Screen, server: str | None) -> int:
    """Forget everything, or what was learnt in the profile or of the server; running gateways notice in seconds."""
    path = setup.config.data_dir / HABITS_FILE
    forgotten: Forgotten | None = Forgotten()
    if path.exists():
        store = HabitStore(path)
        forgotten = store.forget(setup.profile, server)
        store.close()
    if forgotten is None:
        raise PorticoError(
            f"{path} cannot be written: nothing was forgotten", advice="Try again, or stop Portico and delete the file."
        )
    if screen.as_json:
        screen.data({"forgotten": asdict(forgotten), "profile": setup.profile, "server": server})
    elif forgotten.nothing:
        screen.text("Nothing was learnt yet that could be forgotten.")
    else:
        screen.text(
            f"Forgot {counted(forgotten.followed, 'call')} after a search, {counted(forgotten.together, 'pair')} of "
            f"tools used together, the use of {counted(forgotten.used, 'tool')} and how the calls of "
            f"{counted(forgotten.outcomes, 'tool')} went."
        )
    return DONE
