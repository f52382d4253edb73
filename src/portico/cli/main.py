"""Entry point. `stdio` and `serve` skip the option parser, to start fast and use less memory."""

import sys
from collections.abc import Mapping, Sequence

_STDIO_OPTIONS = {
    "--config": "config",
    "-c": "config",
    "--profile": "profile",
    "-p": "profile",
    "--exposure": "exposure",
}
_SERVE_OPTIONS = {**_STDIO_OPTIONS, "--host": "host", "--port": "port", "--token": "token"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["stdio"] and (options := parse_stdio_options(arguments[1:])) is not None:
        from portico.cli.commands import stdio

        return stdio.run_stdio(
            options["config"], _get_last(options["profile"]), _get_last(options["exposure"])
        )
    if arguments[:1] == ["serve"] and (options := parse_serve_options(arguments[1:])) is not None:
        from portico.cli.commands import serve

        port = _get_last(options["port"])
        flags = {
            "gateway.host": _get_last(options["host"]),
            "gateway.port": int(port) if port is not None else None,
            "gateway.token": _get_last(options["token"]),
            "exposure": _get_last(options["exposure"]),
        }
        return serve.run_serve(options["config"], flags, options["profile"])
    from portico.cli.command_table import run_command_line

    return run_command_line(arguments)


def parse_stdio_options(arguments: Sequence[str]) -> dict[str, list[str]] | None:
    """Parse the options of `stdio`; None if they need the full parser, for help or an error."""
    return _parse_plain_options(arguments, _STDIO_OPTIONS)


def parse_serve_options(arguments: Sequence[str]) -> dict[str, list[str]] | None:
    """Parse the options of `serve`; None if they need the full parser."""
    from typing import get_args

    from portico.config import Exposure

    found = _parse_plain_options(arguments, _SERVE_OPTIONS)
    if found is None:
        return None
    has_valid_ports = all(port.isascii() and port.isdigit() for port in found["port"])
    if has_valid_ports and set(found["exposure"]) <= set(get_args(Exposure)):
        return found
    return None


def _parse_plain_options(
    arguments: Sequence[str], option_names: Mapping[str, str]
) -> dict[str, list[str]] | None:
    found: dict[str, list[str]] = {name: [] for name in option_names.values()}
    rest = iter(arguments)
    for argument in rest:
        name, sign, value = argument.partition("=")
        if name not in option_names:
            return None
        if not sign:
            value = next(rest, "-")
            if value.startswith("-"):
                return None
        found[option_names[name]].append(value)
    return found


def _get_last(values: list[str]) -> str | None:
    if values:
        return values[-1]
    return None
