"""Checks command-line programs that are tools: installed, no shell, unambiguous arguments."""

import os
import shutil
from collections.abc import Iterator, Mapping

from portico.cli.doctor.finding import ConfigLocations, DoctorFinding
from portico.config import BackendConfig
from portico.config.command_injection import find_injected_code
from portico.config.command_tool import CommandTool
from portico.config.command_words import END_OF_OPTIONS
from portico.upstream.transports.process import build_environment


def check(name: str, server: BackendConfig, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Yield what is wrong with a server's commands, without running any."""
    if server.cwd is not None and not os.path.isdir(server.cwd):
        yield DoctorFinding(
            "program.cwd_missing",
            "broken",
            f"the working directory {server.cwd} does not exist, so that none of its commands runs",
            f"mkdir -p {server.cwd}  or correct `cwd`",
            **locations.locate_server(name, "cwd"),
        )
        return
    for key, tool in server.commands.items():
        at = locations.locate_server(name, "commands", key, "command")
        if (missing := _find_missing_program(key, tool, server, at)) is not None:
            yield missing
        yield from _check_code(key, tool, at)
        yield from _check_options(key, tool, at)
        yield from _check_placement(
            key, tool, locations.locate_server(name, "commands", key, "arguments")
        )


def _find_missing_program(
    key: str, tool: CommandTool, server: BackendConfig, at: Mapping[str, object]
) -> DoctorFinding | None:
    program = os.path.expanduser(tool.command[0])
    if os.path.dirname(program):
        path = os.path.abspath(os.path.join(server.cwd or "", program))
    else:
        path = program
    if (
        shutil.which(path, path=build_environment(server.env, server.inherit_env).get("PATH"))
        is not None
    ):
        return None
    if os.path.dirname(program) and os.path.isfile(path):
        problem = f"{program} is not executable"
        remedy = f"chmod +x {path}"
        return DoctorFinding("program.not_executable", "broken", f"{key}: {problem}", remedy, **at)  # pyright: ignore[reportArgumentType]
    words = program.split()
    if len(words) > 1:
        remedy = f"Each word by itself: [{', '.join(words)}, …]."
    else:
        remedy = "Install it, write its full path, or add its folder to PATH in the server's `env`."
    if os.path.dirname(program):
        where = ""
    else:
        where = " on PATH"
    return DoctorFinding(
        "program.missing",
        "broken",
        f"{key}: the program {program!r} does not exist{where}",
        f"{remedy} The other commands work.",
        **at,  # pyright: ignore[reportArgumentType]
    )


def _check_code(key: str, tool: CommandTool, at: Mapping[str, object]) -> Iterator[DoctorFinding]:
    """Check for arguments that are run as code.

    An argument that is only a part of the code was already rejected by the configuration.
    """
    for code in (
        found
        for found in find_injected_code(tool.words)
        if tool.arguments[found.argument].is_free_text
    ):
        yield DoctorFinding(
            "program.runs_code",
            "warning",
            f"{key}: {code.program} runs whatever a caller writes for {{{code.argument}}}, "
            "with all your rights",
            "Name the program that should run and make its words arguments; scripts are safe "
            "in run_code.",
            **at,  # pyright: ignore[reportArgumentType]
        )


def _check_options(
    key: str, tool: CommandTool, at: Mapping[str, object]
) -> Iterator[DoctorFinding]:
    for word in tool.words:
        first = word.pieces[0]
        free_arguments = [name for name in word.names if tool.arguments[name].is_free_text]
        if isinstance(first, str) and first in ("-", END_OF_OPTIONS) and free_arguments:
            yield DoctorFinding(
                "program.any_option",
                "warning",
                f"{key}: whoever calls it chooses the option {first}{{{free_arguments[0]}}}",
                f"Give {free_arguments[0]} `choices`, or a boolean with a `flag` for each option.",
                **at,  # pyright: ignore[reportArgumentType]
            )
    for before, word in zip(tool.words[1:], tool.words[2:], strict=False):
        option = before.literal_text or ""
        if (
            option.startswith("-")
            and option != END_OF_OPTIONS
            and "=" not in option
            and _is_optional(tool, word.sole_argument)
        ):
            yield DoctorFinding(
                "program.lonely_option",
                "warning",
                f"{key}: without {word.sole_argument}, {option} stays alone and takes the next "
                "word for its value",
                f"Take {option} out of the words and write flag: '{option} {{}}' at "
                f"{word.sole_argument}; or make it required.",
                **at,  # pyright: ignore[reportArgumentType]
            )


def _check_placement(
    key: str, tool: CommandTool, at: Mapping[str, object]
) -> Iterator[DoctorFinding]:
    placed = {name for word in (*tool.words, tool.stdin_word) for name in word.names}
    unplaced = [
        name
        for name, argument in tool.arguments.items()
        if name not in placed and not argument.flag
    ]
    if unplaced:
        yield DoctorFinding(
            "program.unplaced",
            "note",
            f"{key}: no word names {', '.join(unplaced)}; what is given follows at the end",
            f"Put {{{unplaced[0]}}} where it belongs, or give it a `flag`.",
            **at,  # pyright: ignore[reportArgumentType]
        )


def _is_optional(tool: CommandTool, name: str) -> bool:
    if not name or tool.arguments[name].flag:
        return False
    argument = tool.arguments[name]
    return argument.default is None and not argument.required and argument.type != "boolean"
