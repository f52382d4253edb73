"""`portico audit`: the latest lines of the audit log, newest last, as a person reads a log.

--json: `{"file", "calls": [line]}`; a line is as it was written: `{"at", "id", "client", "profile", "who", "way",
"tool", "hash", "outcome", "seconds", "attempts", "cached", "repaired", "destructive"?, "trace"?, "arguments"?,
"chain", "n", "after"?, "mac"}`; of another request `"method", "server", "target"` in place of the tool.
`{"at", "lost"}` where lines could not be written, `{"at", "dropped"}` where the oldest file was deleted for a new one,
`{"at", "refused_tokens", "peers"}` for wrong tokens.
--verify --json: `{"file", "intact", "sealed", "unsealed", "torn", "problems": [text], "more"}`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from portico.catalog.visible import shown
from portico.cli.columns import Column, show_rows
from portico.cli.ending import DONE, FAILED, note
from portico.cli.opening import Setup
from portico.cli.screen import Screen
from portico.errors import PorticoError
from portico.observability.audit import KEY_FILE, where
from portico.observability.audit_chain import parse_line, verify
from portico.storage.audit_file import in_order, latest
from portico.storage.habit_key import read_key

NOTHING = "No call is in the audit log."
FINE = ("ok", "input_required")


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    tail: int = 20
    tool: str | None = None
    client: str | None = None
    failed: bool = False

    def __contains__(self, line: Mapping[str, Any]) -> bool:
        if _note(line):
            return self.tool is None and self.client is None
        tool = str(line.get("tool") or f"{line.get('server')}.{line.get('target')}")
        bare = tool.partition(".")[2]
        return (
            (self.tool is None or any(fnmatchcase(name, self.tool) for name in (tool, bare)))
            and (self.client is None or line.get("client") == self.client)
            and not (self.failed and line.get("outcome") in FINE)
        )


def audit(setup: Setup, screen: Screen, asked: Asked) -> int:
    """Show what was written last."""
    settings, data_dir = setup.config.audit, setup.config.data_dir
    path = where(settings, data_dir)
    found = list(islice((line for line in _lines(latest(path, settings.files)) if line in asked), asked.tail))[::-1]
    if screen.as_json:
        screen.data({"file": str(path), "calls": found})
    elif found:
        columns = (
            Column("when"), Column("tool", style="cyan", whole=True), Column("outcome"), Column("ms", right=True),
            Column("way"), Column("client"), Column("profile"), Column("who"), Column("arguments"),
        )  # fmt: skip
        show_rows(screen, columns, [_row(line) for line in found])
    else:
        screen.text(NOTHING if asked == Asked(asked.tail) else "No such call is in the audit log.")
    if not settings.enabled:
        note("The audit log is off (audit.enabled): what is shown is what was written before.")
    return DONE


def check(setup: Setup, screen: Screen) -> int:
    """Say whether the log is as it was written."""
    settings, data_dir = setup.config.audit, setup.config.data_dir
    path, key = where(settings, data_dir), read_key(data_dir / KEY_FILE)
    has_lines = next(in_order(path, settings.files), None) is not None
    if has_lines and key is None:
        raise PorticoError(
            f"the key of the log is not in {data_dir / KEY_FILE}", advice="Without it no line can be checked."
        )
    found = verify(in_order(path, settings.files), key or b"")
    intact = not found.problems and (has_lines or key is None)
    if screen.as_json:
        counted = {"sealed": found.sealed, "unsealed": found.unsealed, "torn": found.torn}
        screen.data({"file": str(path), "intact": intact, **counted, "problems": found.problems, "more": found.more})
    elif not has_lines:
        screen.text(NOTHING if key is None else f"{NOTHING} Its key is there, so there was one: it was taken away.")
    else:
        for problem in found.problems:
            screen.text(shown(problem))
        if found.more:
            screen.text(f"and {found.more:,} more")
        state = "is as it was written" if intact else "was changed"
        screen.text(f"{path} {state}: {found.sealed:,} sealed lines, {found.unsealed:,} unsealed, {found.torn:,} torn.")
    return DONE if intact else FAILED


def _lines(raw: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    # One that is cut short is left out: a disk was full, or a process died.
    return (line for one in raw if (line := parse_line(one)))


def _note(line: Mapping[str, Any]) -> str:
    """What a line says that is about no single request; empty for any other."""
    if "lost" in line:
        return f"{line['lost']} lines are missing"
    if "dropped" in line:
        return "older lines were dropped"
    if "refused_tokens" in line:
        peers: Any = line.get("peers", ())
        return shown(f"{line['refused_tokens']} wrong tokens were refused, from {', '.join(map(str, peers))}")
    return ""


def _row(line: Mapping[str, Any]) -> tuple[str, ...]:
    if said := _note(line):
        return (_moment(line), "", said, "", "", "", "", "", "")
    seconds = line.get("seconds")
    arguments = line.get("arguments", "")
    remarks = [word for word in ("cached", "repaired", "destructive") if line.get(word)]
    if (attempts := line.get("attempts")) not in (0, 1, None):
        remarks.append(f"{attempts} attempts")
    return (
        _moment(line),
        _cell(line, "tool") or " ".join(_cell(line, key) for key in ("method", "server", "target")),
        " ".join([_cell(line, "outcome"), f"({', '.join(remarks)})" if remarks else ""]).strip(),
        f"{seconds * 1_000:,.1f}" if isinstance(seconds, int | float) else "",
        _cell(line, "way"),
        _cell(line, "client"),
        _cell(line, "profile"),
        _cell(line, "who"),
        shown(arguments[:12] if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)),
    )


def _moment(line: Mapping[str, Any]) -> str:
    """Local time: whoever looks has a clock on the wall."""
    try:
        return datetime.fromisoformat(str(line.get("at"))).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return shown(str(line.get("at", "")))


def _cell(line: Mapping[str, Any], key: str) -> str:
    return shown(str(line.get(key, "")))
