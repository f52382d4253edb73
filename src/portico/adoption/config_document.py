"""Portico's own configuration file as a document whose entries are changed one at a time. Pure.

YAML, JSON and TOML. A change is made in the text, so comments, order and formatting stay; the
result is parsed, and refused unless exactly this change came of it.
"""

import codecs
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import yaml

from portico.adoption import json_editor, toml_editor, yaml_editor
from portico.config_file.names import SERVER_MAPS
from portico.config_file.tree_reader import ConfigSyntaxError, JsonReader, read_tree
from portico.errors import ConfigError

Keys = Sequence[str]


@dataclass(frozen=True)
class ConfigDocument:
    """The text of a file and the values in it."""

    path: Path
    text: str
    values: Mapping[str, Any]
    byte_order_mark: bytes = b""

    @property
    def file_bytes(self) -> bytes:
        return self.byte_order_mark + self.text.encode()

    @property
    def servers_keys(self) -> tuple[str, ...]:
        """The keys of the map of servers; clients' files have other names for it."""
        for key in SERVER_MAPS:
            inner = self.values.get(key)
            if key == "mcp" and isinstance(inner, dict) and "servers" in inner:
                return "mcp", "servers"
            if key in self.values:
                return (key,)
        return ("servers",)

    @property
    def servers(self) -> Mapping[str, Any]:
        """The entries by name, as they are written."""
        return cast("Mapping[str, Any]", self.get(self.servers_keys) or {})

    def get(self, keys: Keys) -> Any:
        """Return the value at these keys; None if there is none."""
        found: Any = self.values
        for key in keys:
            if not isinstance(found, dict):
                return None
            found = cast("dict[str, Any]", found).get(key)
        return found

    def set_value(self, keys: Keys, value: Any, comment: str = "") -> "ConfigDocument":
        expected = _change(self.values, keys, lambda inner: {**inner, keys[-1]: value})
        if self._format is yaml_editor:
            return self._apply(
                lambda text: yaml_editor.set_value(text, keys, value, comment), expected
            )
        return self._apply(lambda text: self._format.set_value(text, keys, value), expected)

    def insert_first(self, key: str, value: str) -> "ConfigDocument":
        """Return the document with a text setting above its map of servers."""
        expected = {**self.values, key: value}
        if self._format is yaml_editor and self.servers_keys[0] in self.values:
            anchor = self.servers_keys[:1]
            return self._apply(
                lambda text: yaml_editor.insert_before(text, anchor, {key: value}), expected
            )
        return self.set_value((key,), value)

    def remove(self, keys: Keys) -> "ConfigDocument":
        """Return the document without the value at these keys."""

        def drop(inner: Mapping[str, Any]) -> dict[str, Any]:
            return {key: value for key, value in inner.items() if key != keys[-1]}

        expected = _change(self.values, keys, drop)
        return self._apply(lambda text: self._format.remove(text, keys), expected)

    def rename(self, keys: Keys, name: str) -> "ConfigDocument":
        """Return the document with another name for the entry at these keys, in its place."""

        def change_name(inner: Mapping[str, Any]) -> dict[str, Any]:
            return {name if key == keys[-1] else key: value for key, value in inner.items()}

        expected = _change(self.values, keys, change_name)
        return self._apply(lambda text: self._format.rename_key(text, keys, name), expected)

    def add_item(self, keys: Keys, item: str | Mapping[str, Any]) -> "ConfigDocument":
        """Return the document with one more item in the list at these keys."""
        items = [*(self.get(keys) or []), item]
        if self._format is not yaml_editor:
            return self.set_value(keys, items)
        expected = _change(self.values, keys, lambda inner: {**inner, keys[-1]: items})
        return self._apply(lambda text: yaml_editor.add_item(text, keys, item), expected)

    def remove_item(self, keys: Keys, item: str) -> "ConfigDocument":
        """Return the document without an item of the list at these keys."""
        items = [other for other in self.get(keys) if other != item]
        if self._format is not yaml_editor:
            return self.set_value(keys, items)
        expected = _change(self.values, keys, lambda inner: {**inner, keys[-1]: items})
        return self._apply(lambda text: yaml_editor.remove_item(text, keys, item), expected)

    def replace_item(self, keys: Keys, old: str, new: str) -> "ConfigDocument":
        """Return the document with another text for an item of the list at these keys."""
        items = [new if item == old else item for item in self.get(keys)]
        if self._format is not yaml_editor:
            return self.set_value(keys, items)
        expected = _change(self.values, keys, lambda inner: {**inner, keys[-1]: items})
        return self._apply(lambda text: yaml_editor.replace_item(text, keys, old, new), expected)

    def replace_in_item(
        self, keys: Keys, position: int, key: str, old: str, new: str
    ) -> "ConfigDocument":
        """Return the document with another text in one mapping of the list at these keys: the
        value at its key, or an item of the list there."""
        mappings = [dict(item) for item in self.get(keys)]
        value = mappings[position][key]
        if isinstance(value, list):
            items = cast("list[Any]", value)
            mappings[position][key] = [new if item == old else item for item in items]
        else:
            mappings[position][key] = new
        if self._format is not yaml_editor:
            return self.set_value(keys, mappings)
        expected = _change(self.values, keys, lambda inner: {**inner, keys[-1]: mappings})
        return self._apply(
            lambda text: yaml_editor.replace_in_item(text, keys, position, key, old, new), expected
        )

    def insert_entry(self, keys: Keys, index: int, entry: Mapping[str, Any]) -> "ConfigDocument":
        """Return the document with a mapping at this place of the list at these keys."""
        items = list(self.get(keys) or [])
        items.insert(index, dict(entry))
        if self._format is not yaml_editor:
            return self.set_value(keys, items)
        expected = _change(self.values, keys, lambda inner: {**inner, keys[-1]: items})
        return self._apply(
            lambda text: yaml_editor.insert_entry(text, keys, index, entry), expected
        )

    def remove_entry(self, keys: Keys, index: int) -> "ConfigDocument":
        """Return the document without what is at this place of the list at these keys."""
        items = list(self.get(keys))
        del items[index]
        if self._format is not yaml_editor:
            return self.set_value(keys, items)
        expected = _change(self.values, keys, lambda inner: {**inner, keys[-1]: items})
        return self._apply(lambda text: yaml_editor.remove_entry(text, keys, index), expected)

    @property
    def _format(self) -> Any:
        if self.path.suffix in (".json", ".jsonc") or _is_json(self.text):
            return json_editor
        if self.path.suffix == ".toml":
            return toml_editor
        return yaml_editor

    def _apply(self, edit: Callable[[str], str], expected: Mapping[str, Any]) -> "ConfigDocument":
        try:
            text = edit(self.text)
        except (yaml.YAMLError, ConfigSyntaxError, LookupError, StopIteration, RecursionError):
            raise self._refuse() from None
        root, findings = read_tree(text.encode(), self.path.name)
        found: Any = {}
        if root is not None:
            found = root.to_plain()
        if findings or _drop_empty(found) != _drop_empty(_to_plain(expected)):
            raise self._refuse()
        return replace(self, text=text, values=found)

    def _refuse(self) -> ConfigError:
        return ConfigError(
            "cannot be changed there without rewriting what is around it; nothing was written",
            advice="It is written in an unusual way (an alias, perhaps): change it by hand.",
            file=str(self.path),
        )


def parse_config_document(path: Path, data: bytes) -> ConfigDocument:
    """Parse the bytes of a configuration; raises ConfigError if nothing can be changed in it."""
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    try:
        text = data.removeprefix(mark).decode()
    except UnicodeDecodeError:
        raise ConfigError("is not UTF-8 text", advice="Save it as UTF-8.", file=str(path)) from None
    root, findings = read_tree(data, path.name)
    if findings:
        first = findings[0]
        raise ConfigError(first.message, advice=first.advice, file=str(path), line=first.line)
    if root is not None and root.entries is None:
        raise ConfigError("holds no keys", advice="Begin with `servers:`.", file=str(path), line=1)
    values: dict[str, Any] = {}
    if root is not None:
        values = root.to_plain()
    return ConfigDocument(path, text, values, mark)


def add_rules(path: Path, data: bytes, rules: Sequence[Mapping[str, Any]]) -> bytes | None:
    """Add rules after all others of a file; None if that is not safe."""
    try:
        document = parse_config_document(path, data)
        for rule in rules:
            document = document.add_item(("rules",), rule)
    except ConfigError:
        return None
    return document.file_bytes


def insert_servers(
    path: Path,
    data: bytes,
    servers: Mapping[str, Mapping[str, Any]],
    comments: Mapping[str, str],
    env_file: str | None,
) -> bytes | None:
    """Add servers, and `env_file` if there is none, to a file; None if that is not safe."""
    try:
        document = parse_config_document(path, data)
        for name, entry in servers.items():
            keys = (*document.servers_keys, name)
            document = document.set_value(keys, dict(entry), comments.get(name, ""))
        if env_file:
            document = document.insert_first("env_file", env_file)
    except ConfigError:
        return None
    return document.file_bytes


def _is_json(text: str) -> bool:
    """Return whether a file of any name is read as JSON."""
    if text.lstrip()[:1] not in ("{", "/"):
        return False
    try:
        JsonReader(text, "", []).read()
    except ConfigSyntaxError:
        return False
    return True


def _change(
    values: Mapping[str, Any],
    keys: Keys,
    edit: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> dict[str, Any]:
    """Return the values with the mapping around the last of these keys changed."""
    if len(keys) == 1:
        return edit(values)
    inner = values.get(keys[0]) or {}
    if not isinstance(inner, dict):
        return dict(values)
    return {**values, keys[0]: _change(cast("dict[str, Any]", inner), keys[1:], edit)}


def _drop_empty(values: Any) -> Any:
    """Return values without empty mappings and null at their end: both mean the same here."""
    if not isinstance(values, Mapping):
        return values
    inner = {key: _drop_empty(value) for key, value in cast("Mapping[str, Any]", values).items()}
    return {key: value for key, value in inner.items() if value not in ({}, None)}


def _to_plain(value: Any) -> Any:
    """Return a value as a file reads it back: with lists for tuples."""
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(key): _to_plain(inner) for key, inner in items}
    if isinstance(value, (list, tuple)):
        return [_to_plain(inner) for inner in cast("list[Any]", value)]
    return value
