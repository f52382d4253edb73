"""Converts a client's entry to plain values with the same meaning in our file, wherever it is.

Placeholders are preserved: variables stay variables, project folders become absolute paths, and
editor inputs become required variables. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portico.config_file.draft_builder import PATH_KEYS, TEXT_KEYS, resolve_path
from portico.config_file.placeholders import (
    BARE_VARIABLE,
    PLACEHOLDER,
    VARIABLE,
    PlaceholderFolders,
    to_variable_name,
)
from portico.config_file.tree_reader import ConfigNode

_PROJECT_PLACEHOLDERS = ("workspaceFolder", "workspaceFolderBasename", "workspaceRoot")
_EDITOR_INPUT = re.compile(r"(?:input|command|config|extension):(.*)", re.DOTALL)
_RELATIVE_PATH = re.compile(r"\.{1,2}[/\\]")


@dataclass(frozen=True)
class EntryContext:
    """What an entry's placeholders and paths refer to."""

    folders: PlaceholderFolders
    base_folder: Path
    """The base of its relative paths."""
    is_project: bool
    """Whether its file belongs to a project, where its servers are then started."""
    environ: Mapping[str, str]


@dataclass
class ConvertedEntry:
    """An entry in our keys."""

    entry: dict[str, Any]
    required_variables: dict[str, str] = field(default_factory=dict[str, str])
    """Variable → the editor input it replaces, as it was written."""


def convert_entry(node: ConfigNode, context: EntryContext) -> ConvertedEntry:
    """Convert a translated entry for a file of ours."""
    return _EntryConverter(node, context).result


class _EntryConverter:
    def __init__(self, node: ConfigNode, context: EntryContext) -> None:
        self.context = context
        if node.entries:
            env = node.entries.get("env")
        else:
            env = None
        self.own_env = {
            name: value.text
            for name, value in ((env.entries if env is not None else None) or {}).items()
        }
        self.result = ConvertedEntry({})
        entry = self.result.entry
        for key, child in (node.entries or {}).items():
            entry[key] = self.convert_node(child, key, as_text=key in TEXT_KEYS)
        for key in PATH_KEYS:
            if isinstance(entry.get(key), str):
                entry[key] = resolve_path(entry[key], context.base_folder)
        command = entry.get("command")
        if context.is_project and isinstance(command, str) and _RELATIVE_PATH.match(command):
            entry["command"] = str(context.base_folder / command)
        if entry.get("disabled") is False:
            del entry["disabled"]

    def convert_node(self, node: ConfigNode, key: str, *, as_text: bool) -> Any:
        if node.entries is not None:
            return {
                name: self.convert_node(child, key, as_text=as_text or name in TEXT_KEYS)
                for name, child in node.entries.items()
            }
        if node.items is not None:
            return [self.convert_node(child, key, as_text=as_text) for child in node.items]
        if node.value is None or not (as_text or isinstance(node.value, str)):
            return node.value
        return self.convert_text(node.text, key)

    def convert_text(self, text: str, key: str) -> str:
        if key in ("env", "headers"):
            bare = BARE_VARIABLE.fullmatch(text)
        else:
            bare = None
        if bare is not None:
            # `$NAME` is meant as a variable, even if this shell does not have it.
            if bare.group(2) not in self.context.environ:
                self.result.required_variables[bare.group(2)] = text
            return f"{bare.group(1) or ''}${{{bare.group(2)}}}"
        return PLACEHOLDER.sub(lambda match: self.convert_placeholder(match, key), text)

    def convert_placeholder(self, match: re.Match[str], key: str) -> str:
        body = match.group(1)
        placeholder = match.group()
        if body is None:
            return placeholder
        folder = self.context.folders.resolve(body)
        if folder is not None:
            if self.context.is_project and body in _PROJECT_PLACEHOLDERS:
                return folder
            return placeholder
        editor_input = _EDITOR_INPUT.fullmatch(body)
        if editor_input is not None:
            variable = re.sub(r"[^A-Z0-9_]", "_", to_variable_name(editor_input[1]))
            if variable[0].isdigit():
                variable = f"_{variable}"
            self.result.required_variables[variable] = placeholder
            return f"${{{variable}}}"
        variable = VARIABLE.fullmatch(body)
        if variable is None or (key != "env" and self.is_filled_by_server(variable.group(1))):
            return f"${placeholder}"
        return placeholder

    def is_filled_by_server(self, name: str) -> bool:
        """Return whether the server itself expands this, from the env of its entry (as mcp-remote
        does).
        """
        own = self.own_env.get(name)
        return own is not None and "${" not in own and name not in self.context.environ
