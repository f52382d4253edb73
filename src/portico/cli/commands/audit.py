"""`portico audit`: the latest lines of the audit log, newest last.

--json: `{"file", "calls": [line]}`; a line is as it was written: `{"at", "id", "client", "profile",
"who", "way", "tool", "hash", "outcome", "seconds", "attempts", "cached", "repaired",
"destructive"?, "trace"?, "arguments"?, "chain", "n", "after"?, "mac"}`; of another request
`"method", "server", "target"` instead of the tool.
`{"at", "lost"}` where lines could not be written, `{"at", "dropped"}` where the oldest file was
deleted for a new one, `{"at", "refused_tokens", "peers"}` for wrong tokens.
--verify --json: `{"file", "intact", "sealed", "unsealed", "torn", "problems": [text], "more"}`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from portico.catalog.visible_text import sanitize_text
from portico.cli.columns import Column, show_rows
from portico.cli.exit import EXIT_FAILED, EXIT_OK, print_note
from portico.cli.screen import Screen
from portico.cli.setup import Setup
from portico.errors import PorticoError
from portico.observability.audit import KEY_FILE, get_audit_path
from portico.observability.audit_chain import parse_line, verify
from portico.storage.audit_file import iter_lines, iter_lines_backwards
from portico.storage.hash_key import read_key

NO_CALLS = "No call is in the audit log."
SUCCESS_OUTCOMES = ("ok", "input_required")


@dataclass(frozen=True)
class AuditCommandOptions:
    """Options of the command line, and the filter they make."""

    tail: int = 20
    tool: str | None = None
    client: str | None = None
    failed: bool = False

    def __contains__(self, line: Mapping[str, Any]) -> bool:
        if _render_log_note(line):
            return self.tool is None and self.client is None
        tool = str(line.get("tool") or f"{line.get('server')}.{line.get('target')}")
        bare = tool.partition(".")[2]
        return (
            (self.tool is None or any(fnmatchcase(name, self.tool) for name in (tool, bare)))
            and (self.client is None or line.get("client") == self.client)
            and not (self.failed and line.get("outcome") in SUCCESS_OUTCOMES)
        )


def show_audit_log(setup: Setup, screen: Screen, options: AuditCommandOptions) -> int:
    """Show the latest lines."""
    settings = setup.config.audit
    data_dir = setup.config.data_dir
    path = get_audit_path(settings, data_dir)
    matching = (
        line for line in _parse_lines(iter_lines_backwards(path, settings.files)) if line in options
    )
    found = list(islice(matching, options.tail))[::-1]
    if screen.as_json:
        screen.write_json({"file": str(path), "calls": found})
    elif found:
        columns = (
            Column("when"),
            Column("tool", style="cyan", no_wrap=True),
            Column("outcome"),
            Column("ms", align_right=True),
            Column("way"),
            Column("client"),
            Column("profile"),
            Column("who"),
            Column("arguments"),
        )
        show_rows(screen, columns, [_build_row(line) for line in found])
    elif options == AuditCommandOptions(options.tail):
        screen.write_text(NO_CALLS)
    else:
        screen.write_text("No such call is in the audit log.")
    if not settings.enabled:
        print_note(
            "The audit log is off (audit.enabled): what is shown is what was written before."
        )
    return EXIT_OK


def verify_audit_log(setup: Setup, screen: Screen) -> int:
    """Verify that the log is unchanged and show the result."""
    settings = setup.config.audit
    data_dir = setup.config.data_dir
    path = get_audit_path(settings, data_dir)
    key = read_key(data_dir / KEY_FILE)
    has_lines = next(iter_lines(path, settings.files), None) is not None
    if has_lines and key is None:
        raise PorticoError(
            f"the key of the log is not in {data_dir / KEY_FILE}",
            advice="Without it no line can be checked.",
        )
    found = verify(iter_lines(path, settings.files), key or b"")
    intact = not found.problems and (has_lines or key is None)
    if screen.as_json:
        counted = {
            "sealed": found.signed_lines,
            "unsealed": found.unsigned_lines,
            "torn": found.torn_lines,
        }
        screen.write_json(
            {
                "file": str(path),
                "intact": intact,
                **counted,
                "problems": found.problems,
                "more": found.unlisted_problems,
            }
        )
    elif not has_lines and key is None:
        screen.write_text(NO_CALLS)
    elif not has_lines:
        screen.write_text(f"{NO_CALLS} Its key is there, so there was one: it was taken away.")
    else:
        for problem in found.problems:
            screen.write_text(sanitize_text(problem))
        if found.unlisted_problems:
            screen.write_text(f"and {found.unlisted_problems:,} more")
        if intact:
            state = "is as it was written"
        else:
            state = "was changed"
        screen.write_text(
            f"{path} {state}: {found.signed_lines:,} sealed lines, {found.unsigned_lines:,} "
            f"unsealed, {found.torn_lines:,} torn."
        )
    if intact:
        return EXIT_OK
    return EXIT_FAILED


def _parse_lines(raw: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    # A truncated line is left out: the disk was full, or the process was killed.
    return (line for raw_line in raw if (line := parse_line(raw_line)))


def _render_log_note(line: Mapping[str, Any]) -> str:
    """Return the text of a line that is not about a single request; empty for any other."""
    if "lost" in line:
        return f"{line['lost']} lines are missing"
    if "dropped" in line:
        return "older lines were dropped"
    if "refused_tokens" in line:
        peers: Any = line.get("peers", ())
        return sanitize_text(
            f"{line['refused_tokens']} wrong tokens were refused, from {', '.join(map(str, peers))}"
        )
    return ""


def _build_row(line: Mapping[str, Any]) -> tuple[str, ...]:
    if note := _render_log_note(line):
        return (_format_local_time(line), "", note, "", "", "", "", "", "")
    seconds = line.get("seconds")
    arguments = line.get("arguments", "")
    if isinstance(arguments, str):
        arguments_text = arguments[:12]
    else:
        arguments_text = json.dumps(arguments, ensure_ascii=False)
    remarks = [word for word in ("cached", "repaired", "destructive") if line.get(word)]
    if (attempts := line.get("attempts")) not in (0, 1, None):
        remarks.append(f"{attempts} attempts")
    return (
        _format_local_time(line),
        _get_cell(line, "tool")
        or " ".join(_get_cell(line, key) for key in ("method", "server", "target")),
        " ".join(
            [_get_cell(line, "outcome"), f"({', '.join(remarks)})" if remarks else ""]
        ).strip(),
        f"{seconds * 1_000:,.1f}" if isinstance(seconds, int | float) else "",
        _get_cell(line, "way"),
        _get_cell(line, "client"),
        _get_cell(line, "profile"),
        _get_cell(line, "who"),
        sanitize_text(arguments_text),
    )


def _format_local_time(line: Mapping[str, Any]) -> str:
    """Format in local time."""
    try:
        return (
            datetime.fromisoformat(str(line.get("at"))).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        )
    except ValueError:
        return sanitize_text(str(line.get("at", "")))


def _get_cell(line: Mapping[str, Any], key: str) -> str:
    return sanitize_text(str(line.get(key, "")))
