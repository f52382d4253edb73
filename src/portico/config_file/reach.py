"""What a configuration names that it does not have: profiles and pins that lead to no server. Pure."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from portico.config import Config
from portico.config_file.draft import Source, Where, dotted, source_of
from portico.config_file.finding import Finding
from portico.config_file.names import nearest


def leading_nowhere(config: Config, origins: Mapping[Where, Source]) -> list[Finding]:
    """A warning for each name of a server that no server has; none where the servers are not in the configuration."""
    if not config.servers:
        return []
    findings: list[Finding] = []
    for where, name in _named_servers(config):
        if not any(fnmatchcase(server, name) for server in config.servers):
            source = source_of(origins, where)
            near = nearest(name, config.servers)
            advice = f"Did you mean {near[0]}?" if near else f"Servers: {', '.join(list(config.servers)[:8])}."
            findings.append(
                Finding(source.name or source.kind, source.line, dotted(where), f"{name!r} matches no server", advice)
            )
    return findings


def _named_servers(config: Config) -> Iterator[tuple[Where, str]]:
    for profile, section in config.profiles.items():
        for position, glob in enumerate(section.servers):
            yield ("profiles", profile, "servers", position), glob
    for position, pin in enumerate(config.pins):
        server, dot, _ = pin.partition(".")
        if dot:
            yield ("pins", position), server
