"""Adds one file to the draft: fills in placeholders, resolves paths and records lines."""

import os
from collections import ChainMap
from collections.abc import Container, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from portico.config import MAX_SERVER_NAME_LENGTH, RESERVED_NAMES
from portico.config.section import list_names
from portico.config_file.client_translation import translate
from portico.config_file.draft import (
    ConfigDraft,
    ConfigSource,
    KeyPath,
    SourceContext,
    find_source,
    join_key_path,
)
from portico.config_file.env_file import (
    UnwrittenFiles,
    describe_error,
    merge_env_file_from_config,
    read_content,
)
from portico.config_file.file_permissions import WritableByOthers
from portico.config_file.names import find_intended_name, to_server_key
from portico.config_file.placeholders import PlaceholderFolders, expand, parse_env_file
from portico.config_file.secret_file import read_secret_file
from portico.config_file.secret_references import (
    REFERENCING_KEYS,
    ReferenceKind,
    encode_reference,
    is_fixed_argument,
    parse_reference,
)
from portico.config_file.tree_reader import ConfigNode, ConfigSyntaxError, decode_text, read_tree
from portico.errors import ConfigError

TEXT_KEYS = {
    *("args", "base_url", "command", "cwd", "description", "env", "env_file", "functions"),
    *("headers", "inherit_env", "openapi", "query", "recorded", "recorded_slug", "roots", "tags"),
    *("title", "token", "url", "audience", "client_id", "client_secret", "private_key", "issuer"),
    *("scopes", "credentials_key", "assertion", "read", "write"),
    *("identity_provider", "identity_client_id", "identity_client_secret"),
}
"""Keys whose scalars are text as written: the variable DEBUG: no is "no", a token 0123 keeps its
zero."""
PATH_KEYS = ("cwd", "env_file", "recorded")


def add_file(
    draft: ConfigDraft,
    path: Path,
    environ: Mapping[str, str],
    cwd: Path,
    unwritten: UnwrittenFiles | None = None,
) -> None:
    """Add the content of a file, written or not; raises ConfigError if it cannot be read."""
    unwritten = unwritten or {}
    display_path = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
    try:
        data = read_content(path, unwritten)
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}", advice=advise_unreadable(path), file=display_path
        ) from None
    except WritableByOthers as error:
        raise ConfigError(error.message, advice=error.advice, file=display_path) from None
    draft.files.append(path)
    root, findings = read_tree(data, display_path)
    draft.errors += findings
    if root is None:
        if not findings:
            draft.warn(display_path, 0, "", "the file is empty")
        return
    folders = PlaceholderFolders(find_workspace(path, cwd), cwd, Path.home())
    base = folders.workspace if path.parent.name.startswith(".") else path.parent
    add_tree(draft, root, SourceContext(display_path, environ, folders, base), unwritten)


def add_tree(
    draft: ConfigDraft, root: ConfigNode, context: SourceContext, unwritten: UnwrittenFiles
) -> None:
    display_path = context.display_path
    translated = translate(root, display_path)
    draft.errors += translated.errors
    draft.warnings += translated.warnings
    context = merge_env_file_from_config(
        draft, translated.settings.get("env_file"), context, unwritten
    )
    for key, node in translated.settings.items():
        if key == "auth" and node.entries is not None:
            node = ConfigNode([node], node.line)
        if node.value is not None:
            add_setting(ValueResolver(draft, context, (), is_own_file=True), key, node)
    servers = draft.values.setdefault("servers", {})
    names = claim_server_names(draft, translated.servers, display_path)
    for position, (written_name, entry) in enumerate(translated.servers):
        name = names.get(position)
        if name is None:
            continue
        values = ValueResolver(draft, context, ("servers", name), is_own_file=translated.is_own)
        servers[name] = values.resolve_server(entry, translated.problems.get(position, ""))
        if name != written_name:
            servers[name].setdefault("title", written_name)


def add_setting(values: "ValueResolver", key: str, node: ConfigNode) -> None:
    draft = values.draft
    value = values.resolve_node(node, (key,))
    for where, reason in values.problems:
        line = find_source(draft.origins, where).line
        draft.fail(values.display_path, line, join_key_path(where), reason)
    if key in ("data_dir", "env_file") and isinstance(value, str):
        value = resolve_path(value, values.base)
    if key == "contain" and isinstance(value, dict):
        value = resolve_contained_paths(value, values.base)
    if key == "learning" and isinstance(value, str | bool):
        # Expanded, so that a variable or a later file can change the rest of the section.
        value = {"scope": value}
        draft.origins["learning", "scope"] = draft.origins.pop(("learning",))
        values.written = {f"{path}.scope": text for path, text in values.written.items()}
    if key == "profiles" and isinstance(value, dict):
        value = {name: {} if profile is None else profile for name, profile in value.items()}
    known = draft.values.get(key)
    draft.values[key] = (
        {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
    )
    draft.values["written"] = {**draft.values.get("written", {}), **values.written}


def claim_server_names(
    draft: ConfigDraft, servers: Sequence[tuple[str, ConfigNode]], display_path: str
) -> dict[int, str]:
    """Return the key of each server by its position, without those that cannot have one.

    A name that needs no change keeps it, whatever the order; another of the same key is renamed.
    """
    earlier = dict(draft.names)
    claimed: dict[int, str] = {}
    written = [name for name, _ in servers]
    for position in sorted(
        range(len(servers)), key=lambda at: to_server_key(written[at]) != written[at]
    ):
        line = servers[position][1].line
        name = claim_server_name(draft, written[position], line, display_path, earlier)
        if name is not None:
            claimed[position] = name
    return claimed


def claim_server_name(
    draft: ConfigDraft,
    written_name: str,
    line: int,
    display_path: str,
    earlier_names: Mapping[str, str],
) -> str | None:
    """Return the key of a server; None, with an error, if it cannot have one."""
    name = to_server_key(written_name)
    key = f"servers.{written_name}"
    if name.lower() in RESERVED_NAMES:
        advice = "Give the server another name."
        draft.fail(display_path, line, key, "this name is Portico's own", advice)
        return None
    if name in earlier_names and name in draft.names:
        message = f"replaces the {earlier_names[name]!r} of an earlier file"
        draft.warn(display_path, line, key, message)
        draft.forget(("servers", name))
        del draft.names[name]
    if name in draft.names:
        other = draft.names[name]
        renamed = find_free_key(name, draft.names)
        message = f"{other!r} and {written_name!r} would both be named {name}: this is {renamed}"
        draft.warn(display_path, line, key, message, "Rename one of them.")
        name = renamed
    draft.names[name] = written_name
    return name


def find_free_key(key: str, taken: Container[str]) -> str:
    """Return the key with the first number, from 2 on, that makes it free."""
    for number in count(2):
        suffix = f"-{number}"
        candidate = f"{key[: MAX_SERVER_NAME_LENGTH - len(suffix)]}{suffix}"
        if candidate not in taken:
            return candidate
    raise AssertionError("counting does not end")


class ValueResolver:
    """Resolves the nodes at one path to plain values; records written text and problems."""

    def __init__(
        self,
        draft: ConfigDraft,
        context: SourceContext,
        key_path: KeyPath,
        *,
        is_own_file: bool,
    ) -> None:
        self.draft = draft
        self.display_path = context.display_path
        self.key_path = key_path
        self.is_own_file = is_own_file
        self.environ = context.environ
        self.folders = context.folders
        self.base = context.base
        self.outside_env = context.environ
        self.written: dict[str, str] = {}
        self.problems: list[tuple[KeyPath, str]] = []

    def resolve_node(self, node: ConfigNode, key_path: KeyPath, *, as_text: bool = False) -> Any:
        """Return a node's value with placeholders filled in."""
        self.draft.origins[key_path] = ConfigSource("file", self.display_path, node.line)
        if node.entries is not None:
            return {
                key: self.resolve_node(
                    child, (*key_path, key), as_text=as_text or _is_text((*key_path, key))
                )
                for key, child in node.entries.items()
            }
        if node.items is not None:
            return [
                self.resolve_node(child, (*key_path, index), as_text=as_text)
                for index, child in enumerate(node.items)
            ]
        if node.value is None and not (
            as_text and node.text == "~" and isinstance(key_path[-1], int)
        ):
            return None
        if not (as_text or isinstance(node.value, str)):
            return node.value
        bare = not self.is_own_file and key_path[2:3] in (("env",), ("headers",))
        environ = self.environ if key_path[2:3] == ("env",) else self.outside_env
        expansion = expand(
            node.text,
            environ,
            self.folders,
            bare=bare,
            # Clients do not know references, and files of theirs come with other people's projects.
            encode_reference=partial(self.encode_reference, key_path) if self.is_own_file else None,
        )
        if expansion.has_variables:
            self.draft.expanded.add(key_path)
            self.written[join_key_path(key_path[len(self.key_path) :])] = node.text
        self.problems += [(key_path, problem) for problem in expansion.problems]
        for placeholder in expansion.unknown_placeholders:
            message = f"{placeholder} is no variable and stays; $${{ would say so"
            self.draft.warn(self.display_path, node.line, join_key_path(key_path), message)
        return expansion.text

    def encode_reference(self, key_path: KeyPath, kind: ReferenceKind, target: str) -> str:
        """Return what takes the place of a reference; raise ValueError where none may stand.

        The secret of a server is read when that is started; outside servers, where the gateway
        itself needs it, only a file is read, now: loading a configuration runs no program.
        """
        reference = parse_reference(kind, target, self.base)
        if key_path[0] == "servers":
            if key_path[2] not in REFERENCING_KEYS and not is_fixed_argument(key_path[2:]):
                keys = ", ".join(sorted(REFERENCING_KEYS))
                raise ValueError(f"a secret may stand in {keys}, and in a fixed argument of a tool")
            return encode_reference(reference)
        if kind != "file":
            raise ValueError(
                f"${{{kind}:…}} is for servers: give the gateway itself ${{file:path}} or ${{VAR}}"
            )
        try:
            secret = read_secret_file(reference.target)
        except OSError as error:
            raise ValueError(f"{reference} cannot be read: {describe_error(error)}") from None
        except ValueError as error:
            raise ValueError(f"{reference} cannot be read: {error}") from None
        self.draft.files.append(Path(reference.target))
        return secret

    def resolve_server(self, entry: ConfigNode, problem: str) -> dict[str, Any]:
        """Return the values of one server; missing variables become its `problem`."""
        self.draft.origins[self.key_path] = ConfigSource("file", self.display_path, entry.line)
        env = (entry.entries or {}).get("env")
        if not self.is_own_file and env is not None and env.entries:
            # Servers may fill in these variables themselves from their environment, if their client
            # leaves them alone (mcp-remote's headers).
            own_variables = {
                name: f"${{{name}}}" for name, node in env.entries.items() if "${" not in node.text
            }
            self.outside_env = ChainMap(dict(self.environ), own_variables)
        values: dict[str, Any] = {
            key: self.resolve_node(node, (*self.key_path, key), as_text=key in TEXT_KEYS)
            for key, node in (entry.entries or {}).items()
        }
        for key in PATH_KEYS:
            if isinstance(values.get(key), str):
                values[key] = resolve_path(values[key], self.base)
        if isinstance(values.get("openapi"), str) and "://" not in values["openapi"]:
            values["openapi"] = resolve_path(values["openapi"], self.base)
        if isinstance(values.get("contain"), dict):
            values["contain"] = resolve_contained_paths(values["contain"], self.base)
        if values.get("functions") and values.get("cwd") is None:
            values["cwd"] = str(self.base)  # where they are imported from
        if isinstance(values.get("command"), str):
            values["command"] = os.path.expanduser(values["command"])
        pass_through(values)
        self.add_env_file(values)
        reasons = [f"{join_key_path(where[2:])}: {reason}" for where, reason in self.problems]
        if problem:
            reasons.insert(0, problem)
        if reasons:
            values["problem"] = "; ".join(reasons)
            if values.get("disabled") is not True:
                self.draft.warn_of_unusable_server(
                    self.display_path, entry.line, str(self.key_path[1]), values["problem"]
                )
        if self.written:
            values["written"] = self.written
        return values

    def add_env_file(self, values: dict[str, Any]) -> None:
        path = values.get("env_file")
        where = (*self.key_path, "env_file")
        if not isinstance(path, str) or any(key_path == where for key_path, _ in self.problems):
            return
        display_path = self.written.get("env_file", path)
        try:
            found, invalid_lines = parse_env_file(decode_text(read_content(Path(path), {})))
        except WritableByOthers as error:
            line = find_source(self.draft.origins, where).line
            key = join_key_path(where)
            self.draft.fail(self.display_path, line, key, error.message, error.advice)
            return
        except (OSError, ConfigSyntaxError) as error:
            reason = describe_error(error)
            self.problems.append((where, f"{display_path} cannot be read ({reason})"))
            return
        self.draft.files.append(Path(path))
        for line in invalid_lines:
            self.draft.warn(display_path, line, "", "left out, not KEY=VALUE")
        env = values.get("env", {})
        if isinstance(env, dict):
            values["env"] = {**found, **env}


def _is_text(key_path: KeyPath) -> bool:
    """Return whether scalars are text: overridden tools and parameters may have any name."""
    is_name = key_path[2:4] == ("tools", "override") and len(key_path) not in (6, 8)
    return key_path[-1] in TEXT_KEYS and not is_name


def pass_through(values: dict[str, Any]) -> None:
    """Convert variables without a value to `inherit_env`, as in Compose files."""
    for key in ("env", "headers"):
        if key in values and values[key] is None:
            del values[key]
    env = values.get("env")
    inherited: list[str] = []
    if isinstance(env, dict):
        inherited = [name for name, value in env.items() if value is None]
    if inherited:
        values["env"] = {name: value for name, value in values["env"].items() if value is not None}
        known = values.get("inherit_env", [])
        values["inherit_env"] = [*known, *inherited] if isinstance(known, list) else known


def resolve_path(text: str, base: Path) -> str:
    """Resolve ~ and relative paths (from the file); one with a placeholder stays unchanged."""
    if "${" in text:
        return text
    return str(base / Path(text).expanduser())


def resolve_contained_paths(contain: dict[str, Any], base: Path) -> dict[str, Any]:
    """Resolve the paths that a `contain` names."""
    named = {key: list_names(contain[key]) for key in ("read", "write") if contain.get(key)}
    resolved = {key: [resolve_path(str(path), base) for path in named[key]] for key in named}
    return contain | resolved


def find_workspace(path: Path, cwd: Path) -> Path:
    """Return the folder around .vscode or .cursor unless that is the home directory, else `cwd`."""
    project = path.parent.parent
    if path.parent.name.startswith(".") and project != Path.home():
        return project
    return cwd


def advise_unreadable(path: Path) -> str:
    if path.is_dir():
        return "Name a file, not a folder."
    if not path.parent.is_dir():
        return f"There is no folder {path.parent}."
    near = find_intended_name(
        path.name, [other.name for other in path.parent.iterdir() if other.is_file()]
    )
    if near:
        return f"Did you mean {path.with_name(near)}?"
    return "Check the path, or leave it out for the usual places."
