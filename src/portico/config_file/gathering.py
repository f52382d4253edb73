"""One file → plain values in the draft: placeholders filled in, paths made whole, every value with its line."""

import os
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from portico.config import RESERVED_NAMES
from portico.config_file.clients import translate
from portico.config_file.draft import Draft, Source, Where, dotted, source_of
from portico.config_file.env_file import Contents, content, with_env_file
from portico.config_file.file_permissions import WritableByOthers
from portico.config_file.finding import Finding
from portico.config_file.names import misspelled, server_key
from portico.config_file.placeholders import Places, expand, read_env_file
from portico.config_file.reading import Node, Unreadable, decode, read_tree
from portico.errors import ConfigError

AS_WRITTEN = frozenset(
    {"args", "base_url", "command", "cwd", "description", "env", "env_file", "functions", "headers", "inherit_env"}
    | {"openapi", "query", "recorded", "recorded_slug", "roots", "tags", "title", "token", "url"}
)
"""Under these keys a scalar is text, as it was written: the variable DEBUG: no is "no", a token 0123 keeps its zero."""
PATHS = ("cwd", "env_file", "recorded")


def add_file(
    draft: Draft, path: Path, environ: Mapping[str, str], cwd: Path, unwritten: Contents | None = None
) -> None:
    """Gather what a file says, or will say; ConfigError where it cannot be read at all."""
    unwritten = unwritten or {}
    shown = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
    try:
        data = content(path, unwritten)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", advice=unreadable_advice(path), file=shown) from None
    except WritableByOthers as error:
        raise ConfigError(error.message, advice=error.advice, file=shown) from None
    draft.files.append(path)
    root, findings = read_tree(data, shown)
    draft.errors += findings
    if root is None:
        if not findings:
            draft.warnings.append(Finding(shown, 0, "", "the file is empty"))
        return
    told = translate(root, shown)
    draft.errors += told.errors
    draft.warnings += told.warnings
    places = Places(workspace_of(path, cwd), cwd, Path.home())
    base = places.workspace if path.parent.name.startswith(".") else path.parent
    environ = with_env_file(draft, told.settings.get("env_file"), shown, environ, places, base, unwritten)
    for key, node in told.settings.items():
        if node.value is not None:
            add_setting(Values(draft, shown, (), environ, places, base, own=True), key, node)
    servers = draft.values.setdefault("servers", {})
    earlier = dict(draft.names)
    for position, (written_name, entry) in enumerate(told.servers):
        name = free_name(draft, written_name, entry.line, shown, earlier)
        if name is None:
            continue
        values = Values(draft, shown, ("servers", name), environ, places, base, own=told.own)
        servers[name] = values.server(entry, told.problems.get(position, ""))
        if name != written_name:
            servers[name].setdefault("title", written_name)


def add_setting(values: "Values", key: str, node: Node) -> None:
    draft = values.draft
    value = values.plain(node, (key,))
    draft.errors += [
        Finding(values.shown, source_of(draft.origins, where).line, dotted(where), reason)
        for where, reason in values.problems
    ]
    if key in ("data_dir", "env_file") and isinstance(value, str):
        value = resolved(value, values.base)
    if key == "learning" and isinstance(value, str | bool):
        # Written out, so that a variable or a later file can change the rest of the section.
        value = {"scope": value}
        draft.origins["learning", "scope"] = draft.origins.pop(("learning",))
        values.written = {f"{place}.scope": text for place, text in values.written.items()}
    if key == "profiles" and isinstance(value, dict):
        value = {name: {} if profile is None else profile for name, profile in value.items()}
    known = draft.values.get(key)
    draft.values[key] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
    draft.values["written"] = {**draft.values.get("written", {}), **values.written}


def free_name(draft: Draft, written: str, line: int, shown: str, earlier: Mapping[str, str]) -> str | None:
    """The key a server gets; None, with an error, where it cannot have one."""
    name = server_key(written)
    key = f"servers.{written}"
    if name.lower() in RESERVED_NAMES:
        draft.errors.append(Finding(shown, line, key, "this name is Portico's own", "Give the server another name."))
        return None
    if name in earlier and name in draft.names:
        draft.warnings.append(Finding(shown, line, key, f"replaces the {earlier[name]!r} of an earlier file"))
        draft.forget(("servers", name))
        del draft.names[name]
    if name in draft.names:
        both = f"{draft.names[name]!r} and {written!r} would both be named {name}"
        draft.errors.append(Finding(shown, line, key, both, "Rename one of them."))
        return None
    draft.names[name] = written
    return name


class Values:
    """Nodes → plain values at one place, with notes on what was written there and what is missing."""

    def __init__(
        self,
        draft: Draft,
        shown: str,
        where: Where,
        environ: Mapping[str, str],
        places: Places,
        base: Path,
        *,
        own: bool,
    ) -> None:
        self.draft, self.shown, self.where, self.own = draft, shown, where, own
        self.environ, self.places, self.base = environ, places, base
        self.outside_env = environ
        self.written: dict[str, str] = {}
        self.problems: list[tuple[Where, str]] = []

    def plain(self, node: Node, where: Where, *, as_text: bool = False) -> Any:
        """A node's value, placeholders filled in."""
        self.draft.origins[where] = Source("file", self.shown, node.line)
        if node.entries is not None:
            return {
                key: self.plain(child, (*where, key), as_text=as_text or key in AS_WRITTEN)
                for key, child in node.entries.items()
            }
        if node.items is not None:
            return [self.plain(child, (*where, index), as_text=as_text) for index, child in enumerate(node.items)]
        if node.value is None and not (as_text and node.text == "~" and isinstance(where[-1], int)):
            return None
        if not (as_text or isinstance(node.value, str)):
            return node.value
        bare = not self.own and where[2:3] in (("env",), ("headers",))
        environ = self.environ if where[2:3] == ("env",) else self.outside_env
        done = expand(node.text, environ, self.places, bare=bare)
        if done.variables:
            self.draft.expanded.add(where)
            self.written[dotted(where[len(self.where) :])] = node.text
        self.problems += [(where, problem) for problem in done.problems]
        self.draft.warnings += [
            Finding(self.shown, node.line, dotted(where), f"{oddity} is no variable and stays; $${{ would say so")
            for oddity in done.oddities
        ]
        return done.text

    def server(self, entry: Node, problem: str) -> dict[str, Any]:
        """The values of one server; what it lacks becomes its `problem`."""
        self.draft.origins[self.where] = Source("file", self.shown, entry.line)
        env = (entry.entries or {}).get("env")
        if not self.own and env is not None and env.entries:
            # What its client leaves as it is, the server fills in from the variable it is given (mcp-remote's headers).
            given = {name: f"${{{name}}}" for name, node in env.entries.items() if "${" not in node.text}
            self.outside_env = ChainMap(dict(self.environ), given)
        values: dict[str, Any] = {
            key: self.plain(node, (*self.where, key), as_text=key in AS_WRITTEN)
            for key, node in (entry.entries or {}).items()
        }
        for key in PATHS:
            if isinstance(values.get(key), str):
                values[key] = resolved(values[key], self.base)
        if isinstance(values.get("openapi"), str) and "://" not in values["openapi"]:
            values["openapi"] = resolved(values["openapi"], self.base)
        if values.get("functions") and values.get("cwd") is None:
            values["cwd"] = str(self.base)  # where they are imported from
        if isinstance(values.get("command"), str):
            values["command"] = os.path.expanduser(values["command"])
        pass_through(values)
        self.env_file(values)
        reasons = [f"{dotted(where[2:])}: {reason}" for where, reason in self.problems]
        if problem:
            reasons.insert(0, problem)
        if reasons:
            values["problem"] = "; ".join(reasons)
            if values.get("disabled") is not True:
                message = f"cannot be used: {values['problem']}"
                self.draft.warnings.append(Finding(self.shown, entry.line, dotted(self.where), message))
        if self.written:
            values["written"] = self.written
        return values

    def env_file(self, values: dict[str, Any]) -> None:
        path = values.get("env_file")
        where = (*self.where, "env_file")
        if not isinstance(path, str) or any(place == where for place, _ in self.problems):
            return
        shown = self.written.get("env_file", path)
        try:
            found, odd = read_env_file(decode(content(Path(path), {})))
        except WritableByOthers as error:
            source = source_of(self.draft.origins, where)
            self.draft.errors.append(Finding(self.shown, source.line, dotted(where), error.message, error.advice))
            return
        except (OSError, Unreadable) as error:
            reason = error.strerror if isinstance(error, OSError) else error.message
            self.problems.append((where, f"{shown} cannot be read ({reason})"))
            return
        self.draft.files.append(Path(path))
        self.draft.warnings += [Finding(shown, line, "", "left out, not KEY=VALUE") for line in odd]
        env = values.get("env", {})
        if isinstance(env, dict):
            values["env"] = {**found, **env}


def pass_through(values: dict[str, Any]) -> None:
    """A variable without a value is ours, passed on, as Compose files have it."""
    for key in ("env", "headers"):
        if key in values and values[key] is None:
            del values[key]
    env = values.get("env")
    ours = [name for name, value in env.items() if value is None] if isinstance(env, dict) else []
    if ours:
        values["env"] = {name: value for name, value in values["env"].items() if value is not None}
        known = values.get("inherit_env", [])
        values["inherit_env"] = [*known, *ours] if isinstance(known, list) else known


def resolved(text: str, base: Path) -> str:
    """A path as the file means it: ~ is home, relative is from the file. One with a placeholder left stays as it is."""
    return text if "${" in text else str(base / Path(text).expanduser())


def workspace_of(path: Path, cwd: Path) -> Path:
    """The project of a file: the folder around .vscode or .cursor unless that is the home, else where we are."""
    project = path.parent.parent
    return project if path.parent.name.startswith(".") and project != Path.home() else cwd


def unreadable_advice(path: Path) -> str:
    if path.is_dir():
        return "Name a file, not a folder."
    if not path.parent.is_dir():
        return f"There is no folder {path.parent}."
    near = misspelled(path.name, [other.name for other in path.parent.iterdir() if other.is_file()])
    return f"Did you mean {path.with_name(near)}?" if near else "Check the path, or leave it out for the usual places."
