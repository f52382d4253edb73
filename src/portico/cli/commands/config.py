"""`portico config`: the effective configuration, secrets masked, and where each key came from.

--json: `{"files": [path], "demo": bool, "config": {…every key…}, "sources"?: {key: source},
"warnings": [text]}`. As text it is YAML that can be saved and used, without default values of
servers and profiles.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import yaml
from cyclopts import Parameter
from rich.text import Text

from portico.cli.columns import build_table, texts
from portico.cli.exit import EXIT_OK, print_warning
from portico.cli.options import CONFIG_DEFAULTS, ConfigOptions
from portico.cli.screen import Screen
from portico.config import BackendConfig, Profile
from portico.config_file import mask_config
from portico.config_file.json_schema import render_schema


def config(
    *,
    sources: Annotated[bool, Parameter(help="Show where each key came from.")] = False,
    schema: Annotated[
        bool, Parameter(help="Print the JSON Schema of the file, for editors.")
    ] = False,
    options: ConfigOptions = CONFIG_DEFAULTS,
) -> int:
    """Show the configuration or the source of each key."""
    if schema:
        sys.stdout.write(render_schema())
        return EXIT_OK
    setup, screen = options.load()
    loaded = setup.loaded
    plain = mask_config(setup.config)
    origins = {key: str(source) for key, source in loaded.sources.items()}
    if setup.demo:
        origins |= {f"servers.{name}": "demo" for name in setup.config.servers}
    files = [str(path) for path in loaded.files]
    if screen.as_json:
        data: dict[str, Any] = {"files": files, "demo": setup.demo, "config": plain}
        if sources:
            data["sources"] = origins
        screen.write_json({**data, "warnings": [str(warning) for warning in loaded.warnings]})
        return EXIT_OK
    for warning in loaded.warnings:
        print_warning(str(warning))
    if sources:
        _show_sources(screen, plain, origins)
    else:
        heading = ", ".join(files) or "no file; the servers are the embedded demo"
        text = yaml.safe_dump(
            _omit_defaults(plain), sort_keys=False, allow_unicode=True, width=10_000
        )
        screen.write_text(Text(f"# {heading}", style="dim"), text.rstrip())
    return EXIT_OK


def _omit_defaults(plain: Mapping[str, Any]) -> dict[str, Any]:
    default_server = BackendConfig.model_construct().model_dump(mode="json")
    default_profile = Profile().model_dump(mode="json")
    return {
        **plain,
        "servers": {
            name: _omit_default_keys(server, default_server)
            for name, server in plain["servers"].items()
        },
        "profiles": {
            name: _omit_default_keys(profile, default_profile)
            for name, profile in plain["profiles"].items()
        },
    }


def _omit_default_keys(section: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in section.items() if key == "type" or value != defaults.get(key)
    }


def _show_sources(screen: Screen, plain: Mapping[str, Any], origins: Mapping[str, str]) -> None:
    rows = [(key, value, origins[key]) for key, value in _iterate_leaves(plain) if key in origins]
    seen = {key for key, _, _ in rows}
    rows += [(key, "…", source) for key, source in origins.items() if key not in seen]
    if not screen.is_stdout_terminal:
        screen.write_text(*(f"{key} = {value}  # {source}" for key, value, source in rows))
        return
    cells = [
        (key, value, Text(source, style="dim" if source == "default" else "green"))
        for key, value, source in rows
    ]
    screen.write_text(build_table(texts("key", "value", "source"), cells))


def _iterate_leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _iterate_leaves(inner, f"{key}.{name}" if key else str(name))
        return
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _iterate_leaves(inner, f"{key}.{index}")
    yield key, _to_inline_yaml(value)


def _to_inline_yaml(value: Any) -> str:
    return (
        yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000)
        .removesuffix("\n...\n")
        .rstrip()
    )
