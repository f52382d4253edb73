"""`portico install` and `portico uninstall`: points a client at Portico, and gives its file back."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.text import Text

from portico.adoption import pointing
from portico.adoption.backups import Backups, digest
from portico.adoption.clients import Client, places
from portico.adoption.clients import client as client_named
from portico.adoption.difference import difference
from portico.adoption.documents import opened
from portico.adoption.file_writing import read_file
from portico.adoption.installing import Plan, carry_out, chosen, is_installed, plan_install, plan_uninstall, undo
from portico.adoption.places import Place
from portico.cli.ending import DONE, note, overheard
from portico.cli.screen import Screen
from portico.config import default_data_dir
from portico.config_file import LoadedConfig, find_files, load
from portico.errors import ConfigError, PorticoError

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True)
class _Pointer:
    """What is to be written, and what a person should know about it."""

    entry: dict[str, Any]
    exposure: str
    remarks: tuple[str, ...]


def install(
    client: str,
    *,
    config: Sequence[str],
    scope: str | None,
    url: str | None,
    exposure: str | None,
    file: str | None,
    write: bool,
    screen: Screen,
    replace: bool = False,
) -> int:
    """Show what would change in the client's file; with `write`, change it and keep a backup."""
    wanted, backups, cwd = client_named(client), _backups(), Path.cwd()
    place = chosen(wanted, places(wanted, Path.home(), cwd), scope, file)
    files = _configurations(config, cwd)
    if not url:
        _never_itself(place, files, cwd)
    loaded = load(files, {"exposure": exposure})
    pointer = _led(wanted, url, loaded, exposure) if url else _started(wanted, place, files, loaded)
    failing = _failing(place, loaded) if replace else {}
    plan = plan_install(
        wanted,
        place,
        pointer.entry,
        backups,
        lambda servers: {
            name: twin for name, twin in pointing.also_behind(servers, loaded.config).items() if twin not in failing
        },
        replacing=replace,
    )
    absent = place.scope == "user" and not place.path.parent.is_dir()
    copy = carry_out(plan, backups) if write else None
    tokens = _cost(place, plan, loaded)
    for warning in loaded.warnings:
        note(f"Warning: {warning}")
    if screen.as_json:
        screen.data(
            _data(wanted, plan, write)
            | {
                "exposure": pointer.exposure,
                "entry": pointer.entry,
                "backup": str(copy) if copy else None,
                "staying": [*plan.staying],
                "twice": [*plan.twice],
                "twice_tokens": tokens,
                "remarks": [*pointer.remarks],
                "kept": failing,
            }
        )
        return DONE
    screen.text(f"{wanted.title}: {place.path}{', a new file' if plan.before is None else ''}")
    if absent:
        screen.text(f"There was no folder {place.path.parent}: is {wanted.title} installed here?")
    _show_install(wanted, plan, pointer, tokens, screen)
    for name, reason in failing.items():
        screen.text(f"{name} stays in the file, because Portico cannot use it now: {reason}")
    if not plan.changes:
        screen.text(f"{wanted.title} points at Portico already: nothing to do.")
    elif not write:
        screen.text("Nothing is written yet. The same command with --write does it, and keeps a backup.")
    else:
        screen.text(f"Written. {_kept(copy, wanted)}", wanted.after)
    return DONE


def uninstall(client: str, *, scope: str | None, file: str | None, write: bool = True, screen: Screen) -> int:
    """Put the client's file back as it was; without `write`, only show that."""
    wanted, backups = client_named(client), _backups()
    done: list[Plan] = []
    left = list(_targets(wanted, scope, file, backups))
    while left:
        place = next((place for place in left if _untouched(place, backups)), left[0])
        left.remove(place)
        plan = plan_uninstall(place, backups)
        if write:
            undo(plan, backups)
        if plan.outcome != "absent":
            done.append(plan)
    if screen.as_json:
        screen.data([_data(wanted, plan, write) | {"put_back": [*plan.replaced]} for plan in done])
        return DONE
    for plan in done:
        _show_uninstall(wanted, plan, write, screen)
    if not done:
        screen.text(f"{wanted.title} does not point at Portico here: nothing to do.")
    else:
        screen.text(wanted.after if write else "Nothing is written yet.")
    return DONE


def _backups() -> Backups:
    named = os.environ.get("PORTICO_DATA_DIR", "").strip()
    return Backups((Path(named).expanduser() if named else default_data_dir()) / "clients")


def _configurations(named: Sequence[str], cwd: Path) -> list[Path]:
    """What the Portico that is started reads: the files that are named, or those that it finds now."""
    found: Sequence[str | Path] = named or find_files(os.environ, cwd)
    if not named and found == [cwd / ".mcp.json"]:
        # A folder's own servers are no reason to forget what was adopted for this person.
        found = find_files(os.environ, Path(os.devnull)) or found
    return [(cwd / Path(name).expanduser()).absolute() for name in found]


def _never_itself(place: Place, files: Sequence[Path], cwd: Path) -> None:
    """Refuse to make a Portico whose configuration is the file that starts it."""
    target = os.path.realpath(place.path)
    found_later = not files and place.path == cwd / ".mcp.json"
    if found_later or any(os.path.realpath(file) == target for file in files):
        raise ConfigError(
            "is the file that Portico itself would read its servers from",
            advice="Run `portico adopt` first: it writes a portico.yaml with these servers, and Portico reads that.",
            file=str(place.path),
        )


def _started(client: Client, place: Place, files: Sequence[Path], loaded: LoadedConfig) -> _Pointer:
    """An entry that starts Portico with this configuration."""
    said = loaded.sources["exposure"].kind
    exposure = client.exposure if said == "default" else loaded.config.exposure
    arguments = ["stdio", *(word for file in files for word in ("--config", str(file)))]
    if said in ("flag", "env") or (said == "default" and exposure != loaded.config.exposure):
        arguments += ["--exposure", exposure]
    command = pointing.program()
    needs = [name for name in pointing.variables(loaded.config) if name not in loaded.filed]
    reason = {
        "default": f"{client.why}. --exposure chooses another",
        "file": "the configuration says so",
    }.get(said, "you say so")
    remarks = [f"Exposure {exposure}: {reason}."]
    if not files:
        remarks.append(
            "No configuration is found here, so Portico would serve its demo servers. `portico adopt` takes over the "
            "servers you have; run this again after it."
        )
    if needs and client.name not in ("codex", "claude-code"):
        remarks.append(
            f"The configuration takes {', '.join(needs)} from the environment, which {client.title} may not pass on: "
            "an `env_file` is surer."
        )
    path = ""
    if place.scope == "user" and not client.in_a_shell and os.name == "posix":
        shells = os.environ.get("PATH", "")
        if hidden := pointing.hidden(loaded.config, shells):
            path = shells
            remarks.append(
                f"This shell's PATH goes with it: {client.title} is not started in one, and would not find "
                f"{', '.join(hidden)}."
            )
    if place.scope == "project":
        remarks.append("This file is the project's: whoever shares it gets paths that are of this machine.")
    if pointing.fleeting(command):
        remarks.append(
            f"This Portico runs from a cache ({command[0]}): install it first, so that it is still there tomorrow."
        )
    return _Pointer(pointing.started(client, command, arguments, needs, path), exposure, tuple(remarks))


def _led(client: Client, url: str, loaded: LoadedConfig, exposure: str | None) -> _Pointer:
    """An entry that leads to a Portico that is served."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"{url!r} is no address", advice="Write it as http://127.0.0.1:8420/mcp.")
    if exposure is not None:
        raise ConfigError(
            "--exposure is for a Portico that the client starts; one that is served decides itself",
            advice="Give `portico serve` the exposure, or lead the client to a profile: …/mcp/p/NAME.",
        )
    whole = url if parts.path.strip("/") else f"{url.rstrip('/')}/mcp"
    token = loaded.config.gateway.token is not None
    remarks = [f"It leads to {whole}: keep `portico serve` running there."]
    if token and client.bearer:
        remarks.append("The token comes from the variable PORTICO_TOKEN, which the client must have.")
    elif token:
        remarks.append(f"{client.title} needs the token by hand: headers, Authorization, Bearer and the token.")
    return _Pointer(pointing.reached(client, whole, token=token), loaded.config.exposure, tuple(remarks))


def _cost(place: Place, plan: Plan, loaded: LoadedConfig) -> int:
    """What the servers that the client would see twice cost it, as far as that is known from last time."""
    if not plan.twice or plan.before is None:
        return 0
    from portico.adoption.cost import measured  # brings the gateway with it

    twins = pointing.also_behind(opened(place, plan.before).servers, loaded.config)
    try:
        bills = asyncio.run(measured(loaded.config, ()))
    except (PorticoError, OSError):
        return 0  # a figure is no reason to fail
    return bills.direct({twins[name] for name in plan.twice})


def _failing(place: Place, loaded: LoadedConfig) -> dict[str, str]:
    """Of a client's servers that Portico has too, those that do not work behind it, and why: nobody loses them."""
    data = read_file(place.path)
    twins = set(pointing.also_behind(opened(place, data).servers, loaded.config).values()) if data else set[str]()
    if not twins:
        return {}
    from portico.adoption.cost import measured

    bills = asyncio.run(measured(loaded.config, twins))
    return {
        name: overheard(bills.failures.get(name) or "it is switched off, or cannot be started")
        for name in sorted(twins)
        if name not in bills.servers
    }


def _targets(client: Client, scope: str | None, file: str | None, backups: Backups) -> Iterator[Place]:
    """The files in which there is something to undo."""
    there = places(client, Path.home(), Path.cwd())
    recorded = [record.place for record in backups.every() if record.client == client.name]
    if file is not None:
        named = chosen(client, there, scope, file)
        same = [place for place in recorded if place.path == named.path and scope in (None, place.scope)]
        yield from same or [named]
        return
    everywhere = [place for place in recorded if place.scope == "user"]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for place in (*there, *everywhere):
        mark = (os.path.realpath(place.path), place.keys)
        if scope in (None, place.scope) and mark not in seen:
            seen.add(mark)
            try:
                if is_installed(place, backups):
                    yield place
            except ConfigError as error:
                if scope is not None:
                    raise
                note(f"Left alone: {error}")


def _untouched(place: Place, backups: Backups) -> bool:
    record, now = backups.find(place), read_file(place.path)
    return record is not None and now is not None and digest(now) == record.wrote


def _show_install(client: Client, plan: Plan, pointer: _Pointer, tokens: int, screen: Screen) -> None:
    _show_difference(plan, screen, masking=False)
    screen.text(*pointer.remarks)
    if plan.replaced:
        screen.text(
            f"Taken out, because Portico has them: {_names(plan.replaced)}. `portico uninstall` puts them back."
        )
    if plan.staying:
        stay, their = ("server stays", "Its") if len(plan.staying) == 1 else ("servers stay", "Their")
        screen.text(
            f"{len(plan.staying)} {stay} in the file: {_names(plan.staying)}. {their} tools are still loaded beside "
            "Portico."
        )
    if plan.twice:
        cost = f", for {tokens:,} tokens at the start of every conversation" if tokens else ""
        screen.text(
            f"Portico has {_names(plan.twice)}, too, so {client.title} would load what they offer twice{cost}: "
            "--replace takes them out of the file."
        )


def _show_uninstall(client: Client, plan: Plan, write: bool, screen: Screen) -> None:
    if not write:
        _show_difference(plan, screen, masking=True)
    path, be = plan.place.path, "is" if write else "would be"
    if plan.outcome == "restored":
        screen.text(f"{client.title}: {path} {be} as it was before Portico, byte for byte.")
    elif plan.outcome == "removed":
        screen.text(f"{client.title}: {path} was made for Portico, and {be} gone again.")
    else:
        back = f" and {_names(plan.replaced)} put back" if plan.replaced else ""
        screen.text(f"{client.title}: {path} was changed since. Portico's entry {be} taken out{back}; the rest stays.")


def _show_difference(plan: Plan, screen: Screen, *, masking: bool) -> None:
    for line in _difference(plan, masking=masking):
        screen.text(Text(line, style=_COLOURS.get(line[:1], "")))


def _difference(plan: Plan, *, masking: bool) -> list[str]:
    before, after = (_text(plan.place, data) for data in (plan.before, plan.after))
    return difference(before, after, plan.place.path.name, masking=masking)


def _text(place: Place, data: bytes | None) -> str:
    return opened(place, data).text if data is not None else ""


def _data(client: Client, plan: Plan, write: bool) -> dict[str, Any]:
    return {
        "client": client.name,
        "file": str(plan.place.path),
        "scope": plan.place.scope,
        "outcome": plan.outcome,
        "changes": plan.changes,
        "written": write and plan.changes,
        "replaced": [*plan.replaced],
        "diff": _difference(plan, masking=True),
    }


def _kept(copy: Path | None, client: Client) -> str:
    undoing = f"`portico uninstall {client.name}` undoes it."
    return f"The file as it was is kept in {copy}. {undoing}" if copy else undoing


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown
