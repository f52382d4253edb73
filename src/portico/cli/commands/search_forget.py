"""`portico search --forget`: drops what usage has taught and the plans that worked."""

import asyncio
from dataclasses import asdict
from pathlib import Path

from portico.app import HABITS_FILE, RECORD_FILE
from portico.cli.exit import EXIT_OK
from portico.cli.screen import Screen
from portico.cli.setup import Setup
from portico.errors import PorticoError
from portico.rendering.lines import format_count
from portico.storage.gateway_store import GatewayStore
from portico.storage.learning_store import ForgottenCounts, LearningStore


async def forget_learning(setup: Setup, screen: Screen, server: str | None) -> int:
    """Forget everything, or what was learned in a profile or of a server.

    Running gateways notice within seconds. Plans involve several servers, so they stay if only one
    server is to be forgotten.
    """
    path = setup.config.data_dir / HABITS_FILE
    forgotten = await asyncio.to_thread(_forget_habits, path, setup.profile, server)
    if forgotten is None:
        raise PorticoError(
            f"{path} cannot be written: nothing was forgotten",
            advice="Try again, or stop Portico and delete the file.",
        )
    if server is None:
        plans = await _forget_plans(setup)
    else:
        plans = 0
    if (
        forgotten.is_empty
        and not plans
        and setup.profile is not None
        and setup.config.learning.scope == "shared"
    ):
        raise PorticoError(
            f"all profiles learn together here: nothing is kept for {setup.profile} alone, "
            "and nothing was forgotten",
            advice="Without --profile, what all have taught is forgotten.",
        )
    if screen.as_json:
        screen.write_json(
            {
                "forgotten": {**asdict(forgotten), "plans": plans},
                "profile": setup.profile,
                "server": server,
            }
        )
    elif forgotten.is_empty and not plans:
        screen.write_text("Nothing was learnt yet that could be forgotten.")
    else:
        screen.write_text(_render_forgotten(forgotten, plans))
    return EXIT_OK


def _forget_habits(path: Path, profile: str | None, server: str | None) -> ForgottenCounts | None:
    if not any(path.parent.glob(f"{path.name}*")):
        return ForgottenCounts()
    store = LearningStore(path)
    try:
        return store.forget(profile, server)
    finally:
        store.close()


async def _forget_plans(setup: Setup) -> int:
    """Forget stored plans and return their number."""
    url = setup.config.database_url
    path = setup.config.data_dir / RECORD_FILE
    if url is None and not path.exists():
        return 0
    record = GatewayStore(url.get_secret_value() if url else None, path)
    try:
        return await record.forget_plans(setup.profile)
    finally:
        await record.close()


def _render_forgotten(forgotten: ForgottenCounts, plans: int) -> str:
    text = (
        f"Forgot {format_count(forgotten.followed, 'call')} after a search, "
        f"{format_count(forgotten.together, 'pair')} of tools used together"
    )
    if plans:
        text += f", {format_count(plans, 'plan')} that worked"
    text += f" and the use of {format_count(forgotten.used, 'tool')}."
    if forgotten.unreadable:
        text += f" Deleted {format_count(forgotten.unreadable, 'file')} that could not be read."
    return text
