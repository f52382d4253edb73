"""Finds names of servers in profiles and pins that do not exist. Pure."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from portico.config import Config
from portico.config_file.draft import ConfigSource, KeyPath, find_source, join_key_path
from portico.config_file.findings import ConfigFinding
from portico.config_file.names import find_nearest


def find_dangling_references(
    config: Config, origins: Mapping[KeyPath, ConfigSource]
) -> list[ConfigFinding]:
    """Return a warning for each server pattern without a match."""
    if not config.servers:
        return []
    findings: list[ConfigFinding] = []
    for where, name in _iter_server_references(config):
        if not any(fnmatchcase(server, name) for server in config.servers):
            source = find_source(origins, where)
            near = find_nearest(name, config.servers)
            if near:
                advice = f"Did you mean {near[0]}?"
            else:
                advice = f"Servers: {', '.join(list(config.servers)[:8])}."
            findings.append(
                ConfigFinding(
                    source.name or source.kind,
                    source.line,
                    join_key_path(where),
                    f"{name!r} matches no server",
                    advice,
                )
            )
    return findings


def _iter_server_references(config: Config) -> Iterator[tuple[KeyPath, str]]:
    for profile, section in config.profiles.items():
        for position, glob in enumerate(section.servers):
            yield ("profiles", profile, "servers", position), glob
    for position, pin in enumerate(config.pins):
        server, dot, _ = pin.partition(".")
        if dot:
            yield ("pins", position), server
