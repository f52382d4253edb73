"""The way in. Clients start `portico stdio` and wait for it, so that command skips what only people need."""

import sys
from collections.abc import Sequence

_STDIO_OPTIONS = {
    "--config": "config",
    "-c": "config",
    "--profile": "profile",
    "-p": "profile",
    "--exposure": "exposure",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the answer is the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["stdio"]:
        options = stdio_options(arguments[1:])
        if options is not None:
            from portico.cli import stdio

            return stdio.command(options["config"], _last(options["profile"]), _last(options["exposure"]))
    from portico.cli.commands import run

    return run(arguments)


def stdio_options(arguments: Sequence[str]) -> dict[str, list[str]] | None:
    """The options of `stdio`, or None where anything needs more than a glance: help, or a mistake to explain."""
    found: dict[str, list[str]] = {"config": [], "profile": [], "exposure": []}
    rest = iter(arguments)
    for argument in rest:
        name, sign, value = argument.partition("=")
        if name not in _STDIO_OPTIONS:
            return None
        if not sign:
            value = next(rest, "-")
            if value.startswith("-"):
                return None
        found[_STDIO_OPTIONS[name]].append(value)
    return found


def _last(values: list[str]) -> str | None:
    return values[-1] if values else None
