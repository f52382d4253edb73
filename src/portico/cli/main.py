"""Entry point. `stdio`, `serve` and `complete` skip the option parser, to start fast."""

import atexit
import gc
import os
import sys
from collections.abc import Mapping, Sequence

ALONE = "--alone"
"""Serve or answer without the gateway that already runs."""
_STDIO_OPTIONS = {
    "--config": "config",
    "-c": "config",
    "--profile": "profile",
    "-p": "profile",
    "--exposure": "exposure",
}
_SERVE_OPTIONS = {
    **_STDIO_OPTIONS,
    "--host": "host",
    "--port": "port",
    "--token": "token",
    "--log-file": "log_file",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # Read when numpy is loaded: threads of its products would only wait for each other here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # The interpreter would look for garbage in everything once more before it ends.
    atexit.register(gc.freeze)
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["complete"]:
        from portico.cli.completion import print_names

        print_names("".join(arguments[1:2]))
        return 0
    if arguments[:1] == ["stdio"] and (found := parse_stdio_options(arguments[1:])) is not None:
        last = _take_last(found)
        return run_stdio(
            found["config"], last.get("profile"), last.get("exposure"), alone=ALONE in arguments
        )
    if arguments[:1] == ["serve"] and (found := parse_serve_options(arguments[1:])) is not None:
        from portico.cli.commands import serve

        last = _take_last(found)
        port = int(last["port"]) if "port" in last else None
        return serve.run_serve(
            found["config"],
            found["profile"],
            last.get("host"),
            port,
            last.get("token"),
            last.get("exposure"),
            last.get("log_file"),
        )
    from portico.cli.local_gateway.command_client import run_in_gateway

    if (code := run_in_gateway(arguments)) is not None:
        return code
    from portico.cli.command_table import run_command_line

    return run_command_line(arguments)


def run_stdio(
    files: Sequence[str], profile: str | None, exposure: str | None, *, alone: bool
) -> int:
    """Serve one client through the gateway that runs for its configuration, else alone."""
    if not alone:
        from portico.cli.local_gateway.bridge import run_bridge

        run_bridge(files, profile, exposure)
    from portico.cli.commands import stdio

    return stdio.run_stdio(files, profile, exposure)


def parse_stdio_options(arguments: Sequence[str]) -> dict[str, list[str]] | None:
    """Parse the options of `stdio`; None if they need the full parser, for help or an error."""
    valued = [argument for argument in arguments if argument != ALONE]
    return _parse_plain_options(valued, _STDIO_OPTIONS)


def parse_serve_options(arguments: Sequence[str]) -> dict[str, list[str]] | None:
    """Parse the options of `serve`; None if they need the full parser."""
    from typing import get_args

    from portico.config import Exposure

    found = _parse_plain_options(arguments, _SERVE_OPTIONS)
    if found is None or not set(found["exposure"]) <= set(get_args(Exposure)):
        return None
    if all(port.isascii() and port.isdigit() for port in found["port"]):
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


def _take_last(found: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the last value of each option that was given."""
    return {name: values[-1] for name, values in found.items() if values}
