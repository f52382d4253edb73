"""Checks the names in `rules`: one that means nothing here leaves its rule without effect. Pure.

Names of tools are checked where every server that they may mean is listed; people and groups only
where nobody can sign in, or the name nearly is one that the configuration knows.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from portico.catalog.address import find_nearest_names
from portico.catalog.categories import TAXONOMY, normalize_category
from portico.catalog.snapshot import ServerEntry
from portico.cli.doctor.finding import ConfigLocations, DoctorFinding, warning
from portico.config import Config
from portico.config.rules import Rule
from portico.config_file.names import find_intended_name
from portico.policy.patterns import WILDCARDS, AddressPattern, NamePattern
from portico.policy.target import Target

NO_EFFECT = "the rule has no effect for it"


def check_rule_names(
    config: Config, entries: Mapping[str, ServerEntry], locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    """Yield names of servers, tools, categories, profiles and people in rules that mean nothing."""
    categories = list_categories(config)
    for number, rule in enumerate(config.rules):
        for section, position, problem, remedy in (
            *_check_servers(rule, config.servers),
            *_check_addresses(rule, config.servers),
            *_check_tools(rule, config, entries),
            *_check_categories(rule, categories),
            *_check_callers(rule, config),
        ):
            yield warning(
                "rules.unknown_name",
                f"rules[{number}]: {problem}",
                remedy,
                locations.locate("rules", number, section, position),
            )


def list_categories(config: Config) -> frozenset[str]:
    """Return the categories that tools can have: the built-in ones, and those of servers."""
    keys = {category.key for category in TAXONOMY}
    for server in config.servers.values():
        named = (server.category, *server.tags, *server.tools.categories.values())
        keys.update(normalize_category(name) for name in named if name)
    return frozenset(keys)


_Problem = tuple[str, int, str, str]
"""Section and position in it, what is wrong, and the remedy."""


def _check_servers(rule: Rule, servers: Collection[str]) -> Iterator[_Problem]:
    for position, glob in enumerate(rule.servers):
        pattern = NamePattern(glob, is_restrictive=rule.may != "allow")
        if not any(pattern.matches(name) for name in servers):
            yield (
                "servers",
                position,
                f"no server is called {glob!r}: {NO_EFFECT}",
                _suggest(glob, servers, "`portico status` lists the servers."),
            )


def _check_addresses(rule: Rule, servers: Collection[str]) -> Iterator[_Problem]:
    """Yield addresses whose server there is not."""
    named = {"tools": rule.tools, "resources": rule.resources, "prompts": rule.prompts}
    for section, globs in named.items():
        for position, glob in enumerate(globs or ()):
            server, dot, name = glob.partition(".")
            if not dot or WILDCARDS.search(server) or _is_called(server, servers):
                continue
            near = find_nearest_names(server, servers, 3)
            yield (
                section,
                position,
                f"no server is called {server!r}, as in {glob!r}: {NO_EFFECT}",
                _join_suggestions(f"{one}.{name}" for one in near)
                or "`portico status` lists the servers.",
            )


def _check_tools(
    rule: Rule, config: Config, entries: Mapping[str, ServerEntry]
) -> Iterator[_Problem]:
    """Yield globs that match no tool of the servers they may mean, all of which are listed."""
    servers = _select_servers(rule, config.servers)
    for position, glob in enumerate(rule.tools or ()):
        pattern = AddressPattern(glob, is_restrictive=rule.may != "allow")
        meant = [name for name in servers if pattern.may_concern(name)]
        if pattern.matches_all or not meant or not all(name in entries for name in meant):
            continue
        targets = [Target("tool", name, tool) for name in meant for tool in entries[name].tools]
        if not targets or any(map(pattern.matches, targets)):
            continue
        known = {target.address if "." in glob else target.name for target in targets}
        yield (
            "tools",
            position,
            f"{glob!r} matches no tool: {NO_EFFECT}",
            _suggest(glob, known, "`portico browse` lists the tools; write server.tool."),
        )


def _check_categories(rule: Rule, known: Collection[str]) -> Iterator[_Problem]:
    for position, name in enumerate(rule.categories):
        if name in known:
            continue
        meant = normalize_category(name)
        remedy = f"Did you mean {meant}?"
        if meant not in known:
            remedy = _suggest(name, known, "`portico browse` lists the categories.")
        problem = f"no tool can be of the category {name!r}: {NO_EFFECT}"
        yield "categories", position, problem, remedy


def _check_callers(rule: Rule, config: Config) -> Iterator[_Problem]:
    groups = {
        group.removeprefix("group:")
        for issuer in config.auth
        for grants in issuer.profiles.values()
        for group in grants
        if group.startswith("group:")
    }
    for position, caller in enumerate(rule.callers):
        kind, _, glob = caller.partition(":")
        problem = remedy = ""
        if kind == "profile":
            profiles = ("default", *config.profiles)
            if not any(fnmatchcase(name, glob) for name in profiles):
                problem = f"there is no profile {glob!r}: the rule is not for it"
                remedy = _suggest(glob, profiles, "`profiles` names them.")
        elif kind in ("person", "group") and not config.auth:
            problem = f"{caller!r} is nobody: no identity provider is configured"
            remedy = (
                "Name it under `auth`; write key:NAME for the holder of a key, local for yourself."
            )
        elif kind == "group" and glob not in groups and not WILDCARDS.search(glob):
            meant = find_intended_name(glob, groups)
            if meant is not None:
                problem = f"no profile is opened for a group {glob!r}, but one for {meant!r}"
                remedy = f"Did you mean group:{meant}?"
        if problem:
            yield "for", position, problem, remedy


def _select_servers(rule: Rule, servers: Mapping[str, object]) -> list[str]:
    patterns = [NamePattern(glob, is_restrictive=rule.may != "allow") for glob in rule.servers]
    return [
        name
        for name in servers
        if not patterns or any(pattern.matches(name) for pattern in patterns)
    ]


def _is_called(name: str, servers: Iterable[str]) -> bool:
    return name.casefold() in map(str.casefold, servers)


def _suggest(name: str, known: Collection[str], otherwise: str) -> str:
    return _join_suggestions(find_nearest_names(name, known, 3)) or otherwise


def _join_suggestions(names: Iterable[str]) -> str:
    joined = ", ".join(names)
    return f"Did you mean {joined}?" if joined else ""
