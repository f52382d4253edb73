"""How `portico adopt` tells what it found and what it did."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from portico.adoption.cost import Bills
from portico.adoption.finding import Look
from portico.adoption.planning import Candidate, Existing, Files, came_from, reads, renamed
from portico.catalog.visible import shown
from portico.cli.columns import Column, show_rows
from portico.cli.ending import FAILED, as_data, complain, note, overheard
from portico.cli.screen import Screen
from portico.disclosure.cost import saved_share
from portico.disclosure.lines import counted
from portico.errors import PorticoError

_LONGEST = 160


@dataclass(frozen=True)
class Outcome:
    """Everything there is to tell."""

    looked: Look
    there: Existing
    found: tuple[Candidate, ...]
    usual: bool
    """Whether the configuration is where every command looks for it."""
    files: Files | None = None
    bills: Bills | None = None
    picked: tuple[Candidate, ...] = ()
    written: bool = False
    backup: Path | None = None
    by_hand: bool = False
    """What is there could not be added to safely."""

    @property
    def concerned(self) -> tuple[Candidate, ...]:
        """Those whose cost counts: what is in the configuration once what was chosen is, else all that can be used."""
        left_out = ("unusable", "new") if self.picked else ("unusable",)
        return tuple(one for one in self.found if one.standing not in left_out or one in self.picked)

    @property
    def direct(self) -> int:
        return self.bills.direct({one.key for one in self.concerned}) if self.bills else 0

    @property
    def clients(self) -> list[str]:
        """Clients whose servers are in the configuration now."""
        origins = [origin for one in self.concerned for origin in one.found.origins]
        return list(dict.fromkeys(origin.client for origin in origins if origin.client))


def nothing_found(screen: Screen, outcome: Outcome, sources: Sequence[str]) -> int:
    """Say that there is nothing to adopt, and why that may be."""
    if screen.as_json:
        screen.data(_data(outcome))
    _tell_findings(outcome)
    where = ", ".join(sources) if sources else "Claude, Cursor, VS Code, Windsurf, Codex, Gemini, Zed and Cline"
    advice = "" if sources else "`portico adopt --from FILE` reads any other file; `portico demo` needs none."
    complain(PorticoError(f"No MCP servers were found in {where}.", advice=advice))
    return FAILED


def show_found(screen: Screen, outcome: Outcome) -> None:
    """The table, and below it whatever is odd."""
    found, looked = outcome.found, outcome.looked
    doubles = sum(len(one.found.origins) - 1 for one in found)
    told = f"{counted(len(found), 'server')} in {counted(len(looked.files), 'file')}"
    screen.text(told + (f" ({counted(doubles, 'duplicate')} merged)" if doubles > 0 else "") + ":")
    screen.text("")
    columns = (
        Column("", right=True, style="dim"),
        Column("server", style="cyan", whole=True),
        Column("tools", right=True),
        Column("tokens", right=True),
        Column("from"),
        Column("secrets and remarks"),
    )
    show_rows(screen, columns, list(_rows(outcome)))
    screen.text("")
    if line := _cost_line(outcome):
        screen.text(Text(line, style="bold"))
    for line in _remarks(outcome):
        screen.text(Text(shown(line), style="yellow"))
    _tell_findings(outcome)


def _rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    number = 0
    for one in outcome.found:
        number += one.standing == "new"
        bill = outcome.bills.servers.get(one.key) if outcome.bills and one.standing != "unusable" else None
        yield (
            str(number) if one.standing == "new" else "",
            shown(one.name),
            f"{bill.tools:,}" if bill else "?",
            f"{bill.tokens:,}" if bill else "?",
            shown(came_from(one.found)),
            shown(_cell(one)),
        )


def _cell(one: Candidate) -> str:
    match one.standing:
        case "present":
            return "already in the configuration"
        case "differs":
            return "already in the configuration, with other secrets: they stay (change them in its env_file)"
        case "unusable":
            return "cannot be used"
        case "new":
            parts = [f"${{{name}}}" for name in (*one.secrets, *one.found.asked)]
            parts += [f"named {one.found.called} there"] if renamed(one) else []
            parts += ["switched off"] if one.entry.get("disabled") else []
            return ", ".join(parts)


def _cost_line(outcome: Outcome) -> str:
    bills = outcome.bills
    if bills is None or not outcome.direct:
        return ""
    saved = saved_share(outcome.direct, bills.through)
    how = "" if bills.counter == "o200k_base" else " (estimated)"
    line = (
        f"Connected directly they cost a client {outcome.direct:,} tokens{how} before its first word, "
        f"through Portico {bills.through:,}"
    )
    if saved <= 0:
        return f"{line}: so few tools are better listed, with `exposure: full`."
    return f"{line}: {saved:.1%} less."


def _remarks(outcome: Outcome) -> Iterator[str]:
    bills = outcome.bills
    for one in outcome.found:
        at = one.found.origins[0]
        if one.standing == "unusable":
            yield f"{one.name} cannot be adopted: {one.problem} ({at.file}{f':{at.line}' if at.line else ''})"
        elif one.found.asked and one.standing == "new":
            continue
        elif one.problem:
            yield f"{one.name} lacks something: {one.problem}"
        elif bills is not None and one.key in bills.failures:
            anyway = "; it can be adopted all the same" if one.standing == "new" else ""
            yield f"{one.name} did not start: {_short(bills.failures[one.key])}{anyway}."
    late = [
        one.name
        for one in outcome.found
        if one.from_project and one.standing == "new" and not outcome.picked and bills and one.key not in bills.servers
    ]
    late = [name for name in late if bills is None or name not in bills.failures]
    if late:
        yield f"Not started before you choose, because this folder brought them: {', '.join(late)}"
    if inherited := sorted({name for one in outcome.found if one.standing == "new" for name in reads(one)}):
        names = ", ".join(f"${{{name}}}" for name in inherited)
        yield f"Still read from the environment, which a client may not pass on: {names}"
    for one in outcome.found:
        for name, text in one.found.asked.items():
            if one.standing == "new":
                yield f"{one.name}: its client asks for {text}; nobody can be asked here, so it is ${{{name}}} now."


def _short(text: str) -> str:
    line = " ".join(overheard(text).split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _tell_findings(outcome: Outcome) -> None:
    for finding in outcome.looked.findings:
        note(f"Warning: {shown(str(finding))}")


def show_end(screen: Screen, outcome: Outcome, *, dry_run: bool = False) -> None:
    """What was done, and what comes next."""
    if screen.as_json:
        screen.data(_data(outcome))
        return
    files, path = outcome.files, outcome.there.path
    if outcome.by_hand and files is not None:
        kept = f"Its secrets are in {files.env_path}. " if files.env is not None else ""
        advice = f"It was left as it is. {kept}Add this to it:"
        complain(PorticoError(f"{path} cannot be added to without rewriting it.", advice=advice))
        screen.text(files.addition)
        return
    if not outcome.picked:
        if all(one.standing == "unusable" for one in outcome.found):
            screen.text("Nothing new is to be had there.")
        elif not _any_new(outcome):
            screen.text(f"Nothing to do: {path} has them already.")
        elif not dry_run and screen.for_people:
            screen.text("Nothing was written.")
    elif dry_run:
        screen.text("", Text(f"--dry-run: {path} would get", style="bold"), files.addition if files else "")
    elif outcome.written:
        _show_written(screen, outcome)
    for line in _next(outcome) if outcome.written or (outcome.concerned and not _any_new(outcome)) else ():
        screen.text(line)


def _any_new(outcome: Outcome) -> bool:
    return any(one.standing == "new" for one in outcome.found)


def _show_written(screen: Screen, outcome: Outcome) -> None:
    files, path = outcome.files, outcome.there.path
    names = shown(", ".join(one.name for one in outcome.picked))
    screen.text("", Text(f"Adopted {counted(len(outcome.picked), 'server')}: {names}", style="green"))
    screen.text(f"  configuration  {path}")
    if files is not None and files.env is not None:
        screen.text(f"  secrets        {files.env_path}  (only you can read it)")
    if outcome.backup is not None:
        screen.text(f"  backup         {outcome.backup}")
    wanted = [name for one in outcome.picked for name in one.found.asked]
    if wanted and files is not None:
        screen.text(Text(f"Fill in {', '.join(dict.fromkeys(wanted))} there.", style="yellow"))
    if outcome.bills is not None and (saved := outcome.direct - outcome.bills.through) > 0:
        share = saved_share(outcome.direct, outcome.bills.through)
        told = f"Saved at the start of every conversation: {saved:,} of {outcome.direct:,} tokens ({share:.1%})."
        screen.text(Text(told, style="bold"))


def _next(outcome: Outcome) -> list[str]:
    commands = _commands(outcome)
    if not commands:
        return []
    first, *others = commands
    more = f"   (or {', '.join(other.split()[2] for other in others)})" if others else ""
    return ["", f"Next: {first}{more}"]


def _commands(outcome: Outcome) -> list[str]:
    config = "" if outcome.usual else f" --config {outcome.there.path}"
    return [f"portico install {client}{config}" for client in outcome.clients or ["CLIENT"]]


def _data(outcome: Outcome) -> dict[str, Any]:
    files, bills = outcome.files, outcome.bills
    counts = bills is not None and outcome.direct
    return {
        "config": str(outcome.there.path),
        "env_file": str(files.env_path) if files is not None and files.env is not None else None,
        "written": outcome.written,
        "backup": str(outcome.backup) if outcome.backup else None,
        "counter": bills.counter if bills is not None else None,
        "servers": [_server(one, outcome) for one in outcome.found],
        "tokens": {
            "direct": outcome.direct,
            "portico": bills.through,
            "saved": round(saved_share(outcome.direct, bills.through), 4),
        }
        if bills is not None and counts
        else None,
        "findings": [as_data(finding.as_error()) for finding in outcome.looked.findings],
        "addition": files.addition if files is not None and outcome.by_hand else None,
        "next": _commands(outcome) if outcome.written else [],
    }


def _server(one: Candidate, outcome: Outcome) -> dict[str, Any]:
    bills = outcome.bills
    bill = bills.servers.get(one.key) if bills is not None and one.standing != "unusable" else None
    failure = bills.failures.get(one.key, "") if bills is not None else ""
    return {
        "name": one.name,
        "from": [{"client": at.client, "file": at.file, "line": at.line} for at in one.found.origins],
        "standing": one.standing,
        "chosen": one in outcome.picked,
        "tools": bill.tools if bill else None,
        "tokens": bill.tokens if bill else None,
        "secrets": list(one.secrets),
        "wanted": list(one.found.asked),
        "problem": one.problem or _short(failure),
    }
