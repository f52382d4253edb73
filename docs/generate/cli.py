"""Every command with its usage, its arguments and its options, read off the command line's own
definition."""

import inspect
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from cyclopts import App, Group, Parameter
from cyclopts.argument import Argument

from docs.generate.markdown import block, code, joined, table, values
from portico.cli import exit
from portico.cli.command_table import app

_EXITS = {
    exit.EXIT_OK: "Done.",
    exit.EXIT_FAILED: "Failed; stderr says why and what to do. Also what a check answers that found something "
    "(`doctor`, `tokens --verify`).",
    exit.EXIT_INVALID: "The configuration or the command line cannot be used.",
    exit.EXIT_INTERRUPTED: "Interrupted by Ctrl+C.",
    exit.EXIT_BROKEN_PIPE: "Whoever read the output has gone.",
}


def commands() -> dict[str, App]:
    """Every command a person is shown, by name, in the order of the help."""
    found = {name: app[name] for name in app if not name.startswith("-")}
    return dict(
        sorted(
            found.items(),
            key=lambda item: (_group(item[1]).sort_key, item[1].sort_key or 0, item[0]),
        )
    )


def page() -> str:
    """A heading for each command, under the group it is shown in."""
    parts: list[str] = []
    group = ""
    for name, command in commands().items():
        if (heading := _group(command).name) != group:
            group = heading
            parts.append(f"## {heading}")
        parts += _command(name, command)
    exits = table(("code", "meaning"), ((code(str(one)), words) for one, words in _EXITS.items()))
    return joined([*parts, "## Exit codes", exits])


def _command(name: str, command: App) -> Iterator[str]:
    found = command.assemble_argument_collection(default_parameter=Parameter(negative=""))
    shown = [one for one in found if one.parameter.show is not False]
    given = [one for one in shown if one.field_info.kind is not inspect.Parameter.KEYWORD_ONLY]
    options = [one for one in shown if one.field_info.kind is inspect.Parameter.KEYWORD_ONLY]
    words = ["portico", name, *map(_place, given), *(["[OPTIONS]"] if options else [])]
    yield f"### `portico {name}`"
    yield command.help
    yield block("text", " ".join(words))
    yield table(("argument", "meaning"), ((code(one.name), _meaning(one)) for one in given))
    rows = (
        (", ".join(map(code, one.names)), _takes(one), one.parameter.help or "") for one in options
    )
    yield table(("option", "takes", "meaning"), rows)


def _place(argument: Argument) -> str:
    many = "…" if argument.field_info.kind is inspect.Parameter.VAR_POSITIONAL else ""
    return f"{argument.name}{many}" if argument.required else f"[{argument.name}{many}]"


def _meaning(argument: Argument) -> str:
    said = argument.parameter.help or ""
    choices = values(get_args(argument.hint)) if get_origin(argument.hint) is Literal else ""
    return f"{said} One of {choices}." if choices else said


def _takes(option: Argument) -> str:
    """What follows an option, and what it is where it is left out."""
    many, kind = _kind(option.hint)
    if kind is bool:
        return "nothing"
    said = values(get_args(kind)) if get_origin(kind) is Literal else _NAMES.get(kind, "text")
    default = option.field_info.default
    unless = (
        f"; {code(str(default))} unless given"
        if default not in (None, inspect.Parameter.empty)
        else ""
    )
    return f"{said}{', repeatable' if many else ''}{unless}"


_NAMES: dict[Any, str] = {int: "a whole number", float: "a number"}


def _kind(hint: Any) -> tuple[bool, Any]:
    """Whether an option may be repeated, and of which type each value is."""
    choices = [one for one in get_args(hint) if one is not type(None)]
    if get_origin(hint) in (list, tuple):
        return True, choices[0]
    if choices and get_origin(hint) is not Literal:
        return _kind(choices[0])
    return False, hint


def _group(command: App) -> Group:
    (group,) = command.group if isinstance(command.group, tuple) else (command.group,)
    assert isinstance(group, Group)
    return group
