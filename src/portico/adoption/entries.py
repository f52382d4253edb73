"""A client's entry, translated → plain values that mean the same in a file of ours, wherever that file is.

Placeholders survive: variables stay variables, folders of a project become the folders they stood for, and what an
editor asked for becomes a variable that has to be given. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portico.config_file.gathering import AS_WRITTEN, PATHS, resolved
from portico.config_file.placeholders import BARE, PLACEHOLDER, VARIABLE, Places, variable_for
from portico.config_file.reading import Node

_OF_THE_PROJECT = ("workspaceFolder", "workspaceFolderBasename", "workspaceRoot")
_ASKED = re.compile(r"(?:input|command|config|extension):(.*)", re.DOTALL)
_RELATIVE = re.compile(r"\.{1,2}[/\\]")


@dataclass(frozen=True)
class Around:
    """What an entry's words refer to."""

    places: Places
    base: Path
    """Where its relative paths begin."""
    project: bool
    """Whether its file belongs to a project: then that is where its servers are started."""
    environ: Mapping[str, str]


@dataclass
class Written:
    """An entry in our words."""

    entry: dict[str, Any]
    asked: dict[str, str] = field(default_factory=dict[str, str])
    """Variable → what the client asked for instead, as it was written."""


def written(node: Node, around: Around) -> Written:
    """What a translated entry says, for a file of ours."""
    return _Writing(node, around).done


class _Writing:
    def __init__(self, node: Node, around: Around) -> None:
        self.around = around
        env = node.entries.get("env") if node.entries else None
        self.own = {name: value.text for name, value in ((env.entries if env is not None else None) or {}).items()}
        self.done = Written({})
        entry = self.done.entry
        for key, child in (node.entries or {}).items():
            entry[key] = self.plain(child, key, as_text=key in AS_WRITTEN)
        for key in PATHS:
            if isinstance(entry.get(key), str):
                entry[key] = resolved(entry[key], around.base)
        command = entry.get("command")
        if around.project and isinstance(command, str) and _RELATIVE.match(command):
            entry["command"] = str(around.base / command)
        if entry.get("disabled") is False:
            del entry["disabled"]

    def plain(self, node: Node, key: str, *, as_text: bool) -> Any:
        if node.entries is not None:
            return {
                name: self.plain(child, key, as_text=as_text or name in AS_WRITTEN)
                for name, child in node.entries.items()
            }
        if node.items is not None:
            return [self.plain(child, key, as_text=as_text) for child in node.items]
        if node.value is None or not (as_text or isinstance(node.value, str)):
            return node.value
        return self.text(node.text, key)

    def text(self, text: str, key: str) -> str:
        bare = BARE.fullmatch(text) if key in ("env", "headers") else None
        if bare is not None:
            # Whoever writes $NAME means a variable, also where this shell does not have it.
            if bare.group(2) not in self.around.environ:
                self.done.asked[bare.group(2)] = text
            return f"{bare.group(1) or ''}${{{bare.group(2)}}}"
        return PLACEHOLDER.sub(lambda match: self.placeholder(match, key), text)

    def placeholder(self, match: re.Match[str], key: str) -> str:
        body, whole = match.group(1), match.group()
        if body is None:
            return whole
        place = self.around.places.named(body)
        if place is not None:
            return place if self.around.project and body in _OF_THE_PROJECT else whole
        asked = _ASKED.fullmatch(body)
        if asked is not None:
            variable = re.sub(r"[^A-Z0-9_]", "_", variable_for(asked[1]))
            variable = f"_{variable}" if variable[0].isdigit() else variable
            self.done.asked[variable] = whole
            return f"${{{variable}}}"
        variable = VARIABLE.fullmatch(body)
        if variable is None or (key != "env" and self.left_to_the_program(variable.group(1))):
            return f"${whole}"
        return whole

    def left_to_the_program(self, name: str) -> bool:
        """Whether the server itself fills this in, from the variable that its entry gives it (as mcp-remote does)."""
        own = self.own.get(name)
        return own is not None and "${" not in own and name not in self.around.environ
