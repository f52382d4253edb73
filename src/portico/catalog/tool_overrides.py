"""Applies what the configuration says of a server's tools to its entry in the catalog.

Every part of the gateway reads the definition that results, and the server's own stays beside it
for pins, the scan and the translation of arguments. What does not fit the server's definition is
left out, and named.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from portico.catalog.argument_translation import ArgumentTranslation, fold_name
from portico.catalog.schema_overrides import (
    ParameterChange,
    SchemaNotRewritable,
    SchemaRewriter,
)
from portico.catalog.schema_types import ABSENT
from portico.catalog.schema_validator import is_valid_for_schema
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool, compute_hash, encode_json, quote_text
from portico.config import ParameterOverride, ToolOverride, ToolRules
from portico.config_file.secret_references import find_references
from portico.json_text import json_codec
from portico.json_text.json_codec import to_object

MAX_PROBLEMS = 20
_HINTS = {"idempotent": "idempotentHint", "open_world": "openWorldHint"}


@dataclass
class _Findings:
    """What does not fit, for a whole server."""

    problems: dict[str, None] = field(default_factory=dict[str, None])
    applied: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Names of tools, and of their parameters that an override was applied to."""

    def add(self, tool: Tool, parameter: str, problem: str) -> None:
        name = f"{quote_text(tool.upstream_name)}, parameter {quote_text(parameter)}"
        self.problems[f"tools.override of {name}: {problem}"] = None


def apply_overrides(entry: ServerEntry) -> ServerEntry:
    """Return an entry whose tools are as the configuration has them."""
    rules = entry.rules
    if not (rules.read_only or rules.destructive or rules.override):
        return entry
    findings = _Findings()
    tools = {name: _override_tool(tool, rules, findings) for name, tool in entry.tools.items()}
    problems = [*_list_unused(rules, entry.tools, findings), *findings.problems]
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [f"and {len(problems) - MAX_PROBLEMS} more"]
    return replace(entry, tools=tools, override_problems=tuple(problems))


def _list_unused(rules: ToolRules, tools: Mapping[str, Tool], findings: _Findings) -> Iterator[str]:
    """Yield the parameters that none of the tools of a pattern has."""
    for glob, override in rules.override.items():
        names = [
            tool.upstream_name for tool in tools.values() if rules.matches(glob, tool.upstream_name)
        ]
        for parameter in override.parameters if names else ():
            if not any((name, parameter) in findings.applied for name in names):
                who = "the tool has no" if len(names) == 1 else f"none of {len(names)} tools has a"
                yield f"tools.override.{glob}: {who} parameter {quote_text(parameter)}"


def _override_tool(tool: Tool, rules: ToolRules, findings: _Findings) -> Tool:
    override = rules.find_override(tool.upstream_name)
    hints = dict[str, Any](rules.get_hints(tool.upstream_name))
    changed: dict[str, Any] = {}
    translation = None
    if override is not None:
        hints |= {
            hint: getattr(override, key)
            for key, hint in _HINTS.items()
            if getattr(override, key) is not None
        }
        changed = _override_texts(tool, override, hints)
        if override.parameters:
            schema, translation = _override_parameters(tool, override, findings)
            if schema is not None:
                changed["inputSchema"] = schema
    annotations = tool.annotations
    if any(annotations.get(name) != value for name, value in hints.items()):
        changed["annotations"] = {**annotations, **hints}
    if not changed and translation is None:
        return tool
    try:
        blob = encode_json({**tool.definition, **changed})
    except ValueError as error:
        findings.problems[f"tools.override of {quote_text(tool.upstream_name)}: {error}"] = None
        return tool
    # What is fixed is part of what a tool is, although nobody sees it: a result of other values is
    # not the same one.
    key = b""
    if translation is not None:
        key = json_codec.dumps([translation.fixed, translation.own_names])
    return replace(
        tool,
        blob=blob,
        hash=compute_hash(blob + key),
        own_blob=tool.own_blob or tool.blob,
        translation=translation,
    )


def _override_texts(tool: Tool, override: ToolOverride, hints: dict[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    if override.title is not None:
        changed["title"] = override.title
        if "title" in tool.annotations:
            hints["title"] = override.title
    # What is held back says so in its description.
    if override.description is not None and not tool.held:
        changed["description"] = override.description
    return changed


def _override_parameters(
    tool: Tool, override: ToolOverride, findings: _Findings
) -> tuple[dict[str, Any] | None, ArgumentTranslation | None]:
    """Return the schema that callers see, and how arguments are translated; None where they are
    the server's."""
    rewriter = SchemaRewriter(tool.input_schema, is_valid_for_schema)
    try:
        names = rewriter.list_parameters()
    except SchemaNotRewritable:
        names = frozenset(to_object(tool.input_schema.get("properties")))
    changes = _collect_changes(tool, override, names, findings)
    if not changes:
        return None, None
    changes = [_drop_misfit(tool, change, rewriter, findings) for change in changes]
    try:
        schema = rewriter.rewrite(changes)
    except SchemaNotRewritable as error:
        reason = f"{error}, so callers see the parameters without its other conditions"
        findings.add(tool, changes[0].name, reason)
        schema = rewriter.rewrite_simply(changes)
    return schema, _make_translation(changes, names)


def _collect_changes(
    tool: Tool, override: ToolOverride, names: Collection[str], findings: _Findings
) -> list[ParameterChange]:
    wanted = {own: one for own, one in override.parameters.items() if own in names}
    findings.applied.update((tool.upstream_name, own) for own in wanted)
    chosen = _choose_names(wanted, names)
    changes: list[ParameterChange] = []
    for own, one in wanted.items():
        if not one.is_fixed and one.name not in (None, chosen[own]):
            problem = f"it cannot be named {quote_text(one.name)}: another has that name"
            findings.add(tool, own, problem)
        changes.append(
            ParameterChange(
                own,
                chosen[own],
                one.description,
                one.fixed if one.is_fixed else ABSENT,
                one.default if one.has_default and not one.is_fixed else ABSENT,
                is_secret=one.is_fixed and bool(find_references(one.fixed)),
            )
        )
    return changes


def _choose_names(
    wanted: Mapping[str, ParameterOverride], names: Collection[str]
) -> dict[str, str]:
    """Return the name of each parameter as callers see it: of those that would have one name, one
    gets it, and a parameter whose own name it is comes first."""
    chosen = {name: name for name in names}
    chosen |= {own: one.name for own, one in wanted.items() if one.name and not one.is_fixed}
    while True:
        holders: dict[str, str] = {}
        own_names_first = sorted(chosen, key=lambda own: chosen[own] != own)
        refused = [own for own in own_names_first if holders.setdefault(chosen[own], own) != own]
        if not refused:
            return chosen
        # Each keeps its own name, which another may have been given.
        chosen |= {own: own for own in refused}


def _drop_misfit(
    tool: Tool, change: ParameterChange, rewriter: SchemaRewriter, findings: _Findings
) -> ParameterChange:
    """Return a change without a default that its server would refuse. A fixed value stays: calls
    with it are refused, since a caller must not choose another."""
    if not change.is_always_sent or change.is_secret:
        return change
    try:
        if rewriter.accepts(change.name, change.sent):
            return change
    except SchemaNotRewritable:
        return change
    if change.is_fixed:
        problem = "the fixed value does not fit the server's schema, so every call is refused"
        findings.add(tool, change.name, problem)
        return replace(change, is_secret=True)
    findings.add(tool, change.name, "the default does not fit the server's schema")
    return replace(change, default=ABSENT)


def _make_translation(
    changes: list[ParameterChange], names: Collection[str]
) -> ArgumentTranslation | None:
    if not any(change.changes_arguments for change in changes):
        return None
    changed = {change.name for change in changes}
    shown = {change.new_name for change in changes if not change.is_fixed}
    hidden = {fold_name(one.name): "" for one in changes if one.is_fixed}
    hidden |= {fold_name(one.name): one.new_name for one in changes if one.new_name != one.name}
    return ArgumentTranslation(
        {one.new_name: one.name for one in changes if one.new_name != one.name},
        {one.new_name: one.default for one in changes if one.default is not ABSENT},
        {one.name: one.fixed for one in changes if one.is_fixed},
        hidden,
        frozenset(shown.union(name for name in names if name not in changed)),
    )
