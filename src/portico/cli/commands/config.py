"""`portico config`: the effective configuration, secrets masked, and where each key came from.

--json: `{"files": [path], "demo": bool, "config": {…every key…}, "sources"?: {key: source},
"warnings": [text]}`. As text it is YAML that can be saved and used, without default values of
servers and profiles.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from rich.table import Table
from rich.text import Text

from portico.cli.exit import EXIT_OK
from portico.cli.screen import Screen
from portico.cli.setup import Setup
from portico.config import BackendConfig, Profile
from portico.config_file import mask_config


def show_config(setup: Setup, screen: Screen, sources: bool) -> int:
    """Show the configuration or the source of each key."""
    plain = mask_config(setup.config)
    origins = {key: str(source) for key, source in setup.loaded.sources.items()}
    if setup.demo:
        origins |= {f"servers.{name}": "demo" for name in setup.config.servers}
    if screen.as_json:
        data: dict[str, Any] = {
            "files": [str(path) for path in setup.loaded.files],
            "demo": setup.demo,
            "config": plain,
        }
        data |= {"sources": origins} if sources else {}
        screen.write_json({**data, "warnings": [str(warning) for warning in setup.loaded.warnings]})
    elif sources:
        _show_sources(screen, plain, origins)
    else:
        files = (
            ", ".join(str(path) for path in setup.loaded.files)
            or "no file; the servers are the embedded demo"
        )
        screen.write_text(Text(f"# {files}", style="dim"))
        screen.write_text(
            yaml.safe_dump(
                _omit_defaults(plain), sort_keys=False, allow_unicode=True, width=10_000
            ).rstrip()
        )
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
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("key", "value", "source"):
        table.add_column(column, overflow="fold")
    for key, value, source in rows:
        table.add_row(key, value, Text(source, style="dim" if source == "default" else "green"))
    screen.write_text(table)


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
