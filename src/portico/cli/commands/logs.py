"""`portico logs`: the log of the background gateway, or of one server of the running gateway.

--json, with a server: one object a line, `{"sequence", "time" (ISO), "state" (the new state, empty
for a line of stderr), "text"}`. Numbers without a line are of lines that are no longer kept.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from cyclopts import Parameter, validators

from portico.cli.commands.background import BackgroundOptions, require_gateway
from portico.cli.exit import EXIT_FAILED, EXIT_OK, print_note
from portico.cli.local_gateway.background import get_log_path, read_log
from portico.cli.local_gateway.connection import GatewayGone, RunningGateway
from portico.cli.screen import Screen

FOLLOW_S = 0.25


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LogOptions(BackgroundOptions):
    """Options of `logs`."""

    follow: Annotated[bool, Parameter(name=["--follow", "-f"])] = False
    """Show new lines as they come, until Ctrl+C."""
    lines: Annotated[int, Parameter(name=["--lines", "-n"], validator=validators.Number(gte=0))] = (
        50
    )
    """How many of the last lines to show."""


_DEFAULTS = LogOptions()


def logs(
    server: Annotated[
        str | None,
        Parameter(
            help="A server: what it wrote to stderr and how its state changed, as the running "
            "gateway has it. Without it, the log of the gateway in the background."
        ),
    ] = None,
    /,
    *,
    options: LogOptions = _DEFAULTS,
) -> int:
    """Show the log of the background gateway, or of a server."""
    if server is not None:
        return _show_server_log(server, options)
    path = get_log_path(options.identify())
    lines = read_log(path)
    if not path.exists():
        print_note("There is no log: no gateway was started in the background for this.")
        return EXIT_FAILED
    screen = options.make_screen()
    screen.write_text(*lines[len(lines) - min(options.lines, len(lines)) :])
    while options.follow:
        sys.stdout.flush()
        end = path.stat().st_size if path.exists() else 0
        time.sleep(FOLLOW_S)
        screen.write_text(*read_log(path, end))
    return EXIT_OK


def _show_server_log(server: str, options: LogOptions) -> int:
    gateway = require_gateway(options.identify())
    screen = options.make_screen()
    entries = _ask(gateway, server, 0)
    if not entries:
        print_note(f"{server} has written nothing since the gateway started.")
    shown = entries[len(entries) - min(options.lines, len(entries)) :]
    last = 0
    if entries:
        last = entries[-1]["sequence"] - len(shown)
    last = _show_entries(screen, shown, last)
    while options.follow:
        sys.stdout.flush()
        time.sleep(FOLLOW_S)
        try:
            last = _show_entries(screen, _ask(gateway, server, last), last)
        except GatewayGone:
            print_note("The gateway has ended.")
            return EXIT_FAILED
    return EXIT_OK


def _ask(gateway: RunningGateway, server: str, after: int) -> list[dict[str, Any]]:
    return gateway.inspect({"what": "log", "server": server, "after": after})["entries"]


def _show_entries(screen: Screen, entries: Sequence[Mapping[str, Any]], last: int) -> int:
    """Show entries that follow the number `last`; return the number of the last one."""
    for entry in entries:
        missing = entry["sequence"] - last - 1
        if missing > 0 and not screen.as_json:
            screen.write_text(f"… {missing:,} lines are not kept")
        last = entry["sequence"]
        moment = datetime.fromtimestamp(entry["at"]).astimezone()
        if screen.as_json:
            facts = {"state": entry["state"], "text": entry["text"]}
            screen.write_json({"sequence": last, "time": moment.isoformat(), **facts})
        else:
            screen.write_text(_render_entry(entry, moment))
    return last


def _render_entry(entry: Mapping[str, Any], moment: datetime) -> str:
    text = entry["text"]
    if entry["state"]:
        text = f"[{entry['state']}] {text}".rstrip()
    return f"{moment:%Y-%m-%d %H:%M:%S} {text}"
