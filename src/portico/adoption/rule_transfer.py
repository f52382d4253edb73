"""Carries clients' rules into servers of Portico, and finds those that would be lost. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from portico.adoption.client_rules import WHOLE_SERVER, AppliedRule
from portico.config import BackendConfig, Config, ToolRules
from portico.config.rules import MAX_PATTERNS
from portico.config_file.names import ALLOW_KEYS, DENY_KEYS, ENABLED_KEYS

_ALLOW_ALL = {"allow": ["*"]}


def restrict_entry(entry: Mapping[str, Any], rules: Iterable[AppliedRule]) -> dict[str, Any]:
    """Return an entry in our keys with the denials and switches of these rules in it."""
    restricted = dict(entry)
    denied: list[str] = []
    for rule in rules:
        if rule.effect in ("deny", "off") and rule.tool == WHOLE_SERVER:
            restricted["disabled"] = True
        elif rule.effect == "deny":
            denied.append(rule.tool)
    if denied:
        restricted["tools"] = join_tool_rules(get_tool_rules(entry), {"deny": denied})
    return restricted


def keep_other_offers(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry that offers resources and prompts although some tools are left out.

    Clients' rules are about tools; in a file of ours a narrowed server hides everything else, too.
    """
    kept = dict(entry)
    if get_tool_rules(entry).keys() & {"allow", "deny"}:
        kept.setdefault("resources", _ALLOW_ALL)
        kept.setdefault("prompts", _ALLOW_ALL)
    return kept


def get_tool_rules(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `tools` of an entry."""
    tools = entry.get("tools")
    return cast("Mapping[str, Any]", tools) if isinstance(tools, Mapping) else {}


def join_tool_rules(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return rules that permit what both permit, as far as lists can say it."""
    joined = {**other, **one}
    if "deny" in one or "deny" in other:
        joined["deny"] = [*dict.fromkeys((*one.get("deny", ()), *other.get("deny", ())))]
    if "allow" in one and "allow" in other:
        permitted = ToolRules(allow=tuple(other["allow"]))
        joined["allow"] = [name for name in one["allow"] if permitted.permits(name)]
    return joined


def is_denied(rules: Iterable[AppliedRule]) -> bool:
    """Return whether a client forbids the server as a whole."""
    return any(rule.effect == "deny" and rule.tool == WHOLE_SERVER for rule in rules)


def list_asked_tools(rules: Iterable[AppliedRule]) -> tuple[str, ...]:
    """Return the globs of tools that a client asks a person about."""
    return tuple(dict.fromkeys(rule.tool for rule in rules if rule.effect == "ask"))


def make_ask_rules(server: str, globs: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield rules of ours that ask a person about these tools of a server."""
    for start in range(0, len(globs), MAX_PATTERNS):
        tools = [f"{server}.{glob}" for glob in globs[start : start + MAX_PATTERNS]]
        yield {"tools": tools, "may": "ask"}


def can_ask(config: Config) -> bool:
    """Return whether a rule that asks, after all others, decides, and weakens none."""
    return config.default == "allow" and all(rule.may != "allow" for rule in config.rules)


def is_asked(config: Config, server: str, glob: str) -> bool:
    """Return whether nobody may call such tools without consent, as far as it can be seen."""
    for rule in config.rules:
        if rule.may == "allow":
            # It may decide before the next.
            return False
        named = {"tools", "say", "may", "visible"}
        if rule.model_fields_set <= named and any(
            fnmatchcase(f"{server}.{glob}", pattern) for pattern in rule.tools or ()
        ):
            return True
    return config.default != "allow"


def find_lost_rules(
    rules: Iterable[AppliedRule],
    client_entry: Mapping[str, Any],
    server: BackendConfig,
    is_asked: Callable[[str], bool],
) -> Iterator[str]:
    """Yield the rules of a client that would not hold if it used Portico's server instead.

    `client_entry` is the server as the client wrote it; `is_asked` says whether our rules have a
    person asked about a glob of its tools.
    """
    if server.disabled:
        return
    for rule in rules:
        if rule.effect == "approve" or is_tool_denied(server.tools, rule.tool):
            continue
        if rule.effect == "ask" and is_asked(rule.tool):
            continue
        yield f"{rule.text} ({rule.file})" if rule.file else rule.text
    for key in DENY_KEYS:
        for name in _get_names(client_entry, key):
            if not is_tool_denied(server.tools, name):
                yield f"{key}: {name}"
    for key in ALLOW_KEYS:
        names = _get_names(client_entry, key)
        permitted = ToolRules(allow=tuple(names))
        if names and not all(permitted.permits(glob) for glob in server.tools.allow):
            yield f"{key}: {', '.join(names)}"
    if client_entry.get("disabled") is True or any(
        client_entry.get(key) is False for key in ENABLED_KEYS
    ):
        yield "it is switched off there"


def is_tool_denied(rules: ToolRules, glob: str) -> bool:
    """Return whether rules leave out every tool that a glob matches, as far as it can be seen."""
    if any(fnmatchcase(glob, denied) for denied in rules.deny):
        return True
    is_name = not any(char in glob for char in "*?[")
    return is_name and not rules.permits(glob)


def _get_names(entry: Mapping[str, Any], key: str) -> Sequence[str]:
    value = entry.get(key)
    return [str(item) for item in cast("list[Any]", value)] if isinstance(value, list) else []
