"""`portico audit`: the latest lines of the audit log, newest last.

--json: `{"file", "calls": [line]}`; a line is as it was written: `{"at", "id", "person", "client",
"profile", "who", "way", "tool", "hash", "outcome", "seconds", "attempts", "cached", "repaired",
"credential"?, "destructive"?, "approval"?, "decided"?, "trace"?, "arguments"?, "chain", "n",
"after"?, "mac"}`; of another request `"method", "server", "target"` instead of the tool.
`{"at", "lost"}` where lines could not be written, `{"at", "dropped"}` where the oldest file was
deleted for a new one, `{"at", "refused_tokens", "peers"}` for wrong tokens.
--verify --json: `{"file", "intact", "sealed", "unsealed", "torn", "problems": [text], "more"}`.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Any

from portico.catalog.tool import sanitize_text
from portico.cli.columns import TOOL_COLUMN, numbers, show_rows, texts
from portico.cli.exit import EXIT_FAILED, EXIT_OK, print_note
from portico.cli.look_commands import AuditOptions
from portico.cli.screen import Screen
from portico.errors import PorticoError
from portico.observability.audit import KEY_FILE, get_audit_path
from portico.storage.audit_file import iter_lines, iter_lines_backwards, parse_line
from portico.storage.audit_file import verify as verify_lines
from portico.storage.data_files import read_key

if TYPE_CHECKING:
    from portico.cli.setup import Setup

NO_CALLS = "No call is in the audit log."
SUCCESS_OUTCOMES = ("ok", "input_required")


def run_audit(options: AuditOptions) -> int:
    """Show the latest lines, or verify that the log is unchanged."""
    setup, screen = options.load()
    if options.verify:
        return _verify_log(setup, screen)
    settings = setup.config.audit
    path = get_audit_path(settings, setup.config.data_dir)
    lines = _parse_lines(iter_lines_backwards(path, settings.files))
    found = list(islice((line for line in lines if _is_wanted(line, options)), options.tail))[::-1]
    if screen.as_json:
        screen.write_json({"file": str(path), "calls": found})
    elif found:
        columns = (
            *texts("when"),
            TOOL_COLUMN,
            *texts("outcome"),
            *numbers("ms"),
            *texts("way", "person", "client", "profile", "who", "arguments"),
        )
        show_rows(screen, columns, [_build_row(line) for line in found])
    elif options.tool or options.client or options.failed:
        screen.write_text("No such call is in the audit log.")
    else:
        screen.write_text(NO_CALLS)
    if not settings.enabled:
        print_note(
            "The audit log is off (audit.enabled): what is shown is what was written before."
        )
    return EXIT_OK


def _is_wanted(line: Mapping[str, Any], options: AuditOptions) -> bool:
    """Return whether a line is to be shown."""
    if _render_log_note(line):
        return options.tool is None and options.client is None
    tool = str(line.get("tool") or f"{line.get('server')}.{line.get('target')}")
    bare = tool.partition(".")[2]
    return (
        (options.tool is None or any(fnmatchcase(name, options.tool) for name in (tool, bare)))
        and (options.client is None or line.get("client") == options.client)
        and not (options.failed and line.get("outcome") in SUCCESS_OUTCOMES)
    )


def _verify_log(setup: "Setup", screen: Screen) -> int:
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
    found = verify_lines(iter_lines(path, settings.files), key or b"")
    intact = not found.problems and (has_lines or key is None)
    if screen.as_json:
        screen.write_json(
            {
                "file": str(path),
                "intact": intact,
                "sealed": found.signed_lines,
                "unsealed": found.unsigned_lines,
                "torn": found.torn_lines,
                "problems": found.problems,
                "more": found.unlisted_problems,
            }
        )
    elif has_lines:
        screen.write_text(*map(sanitize_text, found.problems))
        if found.unlisted_problems:
            screen.write_text(f"and {found.unlisted_problems:,} more")
        state = "is as it was written" if intact else "was changed"
        screen.write_text(
            f"{path} {state}: {found.signed_lines:,} sealed lines, {found.unsigned_lines:,} "
            f"unsealed, {found.torn_lines:,} torn."
        )
    elif key is None:
        screen.write_text(NO_CALLS)
    else:
        screen.write_text(f"{NO_CALLS} Its key is there, so there was one: it was taken away.")
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
        return (_format_local_time(line), "", note, *[""] * 7)
    arguments = line.get("arguments", "")
    if isinstance(arguments, str):
        arguments = arguments[:12]
    else:
        arguments = json.dumps(arguments, ensure_ascii=False)
    remarks = [word for word in ("cached", "repaired", "destructive") if line.get(word)]
    if isinstance(decided := line.get("decided"), Mapping):
        remarks.append(f"decided by {sanitize_text(decided.get('by'))}")
    if (attempts := line.get("attempts")) not in (0, 1, None):
        remarks.append(f"{attempts} attempts")
    outcome = _get_cell(line, "outcome")
    if remarks:
        outcome += f" ({', '.join(remarks)})"
    seconds = line.get("seconds")
    return (
        _format_local_time(line),
        _get_cell(line, "tool")
        or " ".join(_get_cell(line, key) for key in ("method", "server", "target")),
        outcome,
        f"{seconds * 1_000:,.1f}" if isinstance(seconds, int | float) else "",
        *(_get_cell(line, key) for key in ("way", "person", "client", "profile", "who")),
        sanitize_text(arguments),
    )


def _format_local_time(line: Mapping[str, Any]) -> str:
    try:
        moment = datetime.fromisoformat(str(line.get("at")))
    except ValueError:
        return _get_cell(line, "at")
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _get_cell(line: Mapping[str, Any], key: str) -> str:
    return sanitize_text(str(line.get(key, "")))
