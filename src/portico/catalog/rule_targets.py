"""What rules are about, by name: one target, and everything of a snapshot with what may be done."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from portico.catalog.rule_filter import make_tool_target
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import sanitize_text
from portico.errors import InvalidArguments, UnknownName
from portico.policy.rules import CallerRules
from portico.policy.target import Target


@dataclass(frozen=True)
class TargetDecision:
    """What the rules make of one target, whatever the arguments."""

    kind: str
    name: str
    may: str
    """`allow`, `ask` or `deny`; `depends` if it does on the arguments."""
    rule: str
    """The rules that concern it, in their order."""


def find_target(snapshot: Snapshot, name: str) -> tuple[Target, Any]:
    """Return what a name is about, and the schema of its arguments: a tool, `resource:SERVER.URI`
    or `prompt:SERVER.NAME`. Raises InvalidArguments and UnknownName."""
    for kind in ("resource", "prompt"):
        if name.startswith(f"{kind}:"):
            server, dot, rest = name.removeprefix(f"{kind}:").partition(".")
            if not dot or not rest:
                raise InvalidArguments(
                    f"{name!r} names no {kind}", advice=f"Write {kind}:SERVER.NAME."
                )
            return Target(kind, server, rest), {}
    try:
        tool = snapshot.resolve_tool(name)
    except UnknownName:
        server, dot, rest = name.partition(".")
        if not dot or not rest:
            raise
        # Nothing is known of a tool that is not listed.
        return Target("tool", server, rest, is_destructive=True), {}
    return make_tool_target(tool, snapshot.get_category(tool.address)), tool.input_schema


def list_decisions(own: CallerRules, snapshot: Snapshot) -> Iterator[TargetDecision]:
    """Yield what one caller's rules make of everything in a snapshot."""
    for target in _list_targets(snapshot):
        decision = own.decide_without_arguments(target)
        may = "depends" if decision is None else decision.effect
        named = [rule.decision.rule for rule in own.list_applicable(target)] or ["default"]
        yield TargetDecision(target.kind, sanitize_text(target.address), may, ", ".join(named))


def count_targets(snapshot: Snapshot) -> int:
    """Return how many tools, resources, templates and prompts a snapshot has."""
    return len(snapshot.tools) + sum(entry.offers.count for entry in snapshot.servers.values())


def _list_targets(snapshot: Snapshot) -> Iterator[Target]:
    for tool in snapshot.tools.values():
        yield make_tool_target(tool, snapshot.get_category(tool.address))
    for name, entry in sorted(snapshot.servers.items()):
        for resource in entry.offers.resources:
            yield Target("resource", name, resource["uri"])
        for template in entry.offers.templates:
            yield Target("resource", name, template["uriTemplate"])
        for prompt in entry.offers.prompts:
            yield Target("prompt", name, prompt["name"])
