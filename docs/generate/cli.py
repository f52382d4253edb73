"""The page of commands: usage, arguments and options, from the definition of the command line."""

import inspect
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from cyclopts import App, Group, Parameter
from cyclopts.argument import Argument

from docs.generate.markdown import block, code, join_paragraphs, table, values
from portico.cli import exit
from portico.cli.command_table import app

_EXITS = {
    exit.EXIT_OK: "Done.",
    exit.EXIT_FAILED: (
        "Failed; stderr says why and what to do. Also what a check answers that found something "
        "(`doctor`, `tokens --verify`)."
    ),
    exit.EXIT_INVALID: "The configuration or the command line cannot be used.",
    exit.EXIT_INTERRUPTED: "Interrupted by Ctrl+C.",
    exit.EXIT_BROKEN_PIPE: "The reader of the output has exited.",
}


def commands() -> dict[str, App]:
    """Return every visible command by name, in the order of the help."""
    found = sorted(
        _subcommands(app).items(),
        key=lambda item: (_group(item[1]).sort_key, item[1].sort_key or 0, item[0]),
    )
    listed: dict[str, App] = {}
    for name, command in found:
        listed[name] = command
        for part, subcommand in _subcommands(command).items():
            listed[f"{name} {part}"] = subcommand
    return listed


def _subcommands(command: App) -> dict[str, App]:
    return {name: command[name] for name in command if not name.startswith("-")}


def page() -> str:
    """Render a heading for each command, under its group."""
    parts: list[str] = []
    group = ""
    for name, command in commands().items():
        if " " not in name and (heading := _group(command).name) != group:
            group = heading
            parts.append(f"## {heading}")
        if command.default_command is None:
            parts += (f"### `portico {name}`", command.help)
        else:
            parts += _command(name, command)
    exits = table(
        ("code", "meaning"), ((code(str(exit_code)), words) for exit_code, words in _EXITS.items())
    )
    return join_paragraphs([*parts, "## Exit codes", exits])


def _command(name: str, command: App) -> Iterator[str]:
    collection = command.assemble_argument_collection(default_parameter=Parameter(negative=""))
    shown = [argument for argument in collection if argument.show]
    arguments = [
        argument
        for argument in shown
        if argument.field_info.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    options = [
        argument for argument in shown if argument.field_info.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    words = ["portico", name, *map(_place, arguments), *(["[OPTIONS]"] if options else [])]
    yield f"### `portico {name}`"
    yield command.help
    yield block("text", " ".join(words))
    yield table(
        ("argument", "meaning"),
        ((code(argument.name), _meaning(argument)) for argument in arguments),
    )
    rows = (
        (", ".join(map(code, argument.names)), _takes(argument), argument.parameter.help or "")
        for argument in options
    )
    yield table(("option", "takes", "meaning"), rows)


def _place(argument: Argument) -> str:
    repeated = "…" if argument.field_info.kind is inspect.Parameter.VAR_POSITIONAL else ""
    return f"{argument.name}{repeated}" if argument.required else f"[{argument.name}{repeated}]"


def _meaning(argument: Argument) -> str:
    help_text = argument.parameter.help or ""
    choices = values(get_args(argument.hint)) if get_origin(argument.hint) is Literal else ""
    return f"{help_text} One of {choices}." if choices else help_text


def _takes(option: Argument) -> str:
    """Describe the value of an option and its default."""
    repeatable, kind = _kind(option.hint)
    if kind is bool:
        return "nothing"
    value_text = values(get_args(kind)) if get_origin(kind) is Literal else _NAMES.get(kind, "text")
    default = option.field_info.default
    default_text = (
        f"; {code(str(default))} unless given"
        if default not in (None, inspect.Parameter.empty)
        else ""
    )
    return f"{value_text}{', repeatable' if repeatable else ''}{default_text}"


_NAMES: dict[Any, str] = {int: "a whole number", float: "a number"}


def _kind(hint: Any) -> tuple[bool, Any]:
    """Return whether an option may be repeated, and the type of each value."""
    choices = [choice for choice in get_args(hint) if choice is not type(None)]
    if get_origin(hint) in (list, tuple):
        return True, choices[0]
    if choices and get_origin(hint) is not Literal:
        return _kind(choices[0])
    return False, hint


def _group(command: App) -> Group:
    (group,) = command.group if isinstance(command.group, tuple) else (command.group,)
    assert isinstance(group, Group)
    return group
