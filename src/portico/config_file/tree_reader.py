"""Reads YAML, JSON (as editors write it) and TOML into a tree of nodes with line numbers.

JSON has its own reader: YAML refuses comments, tabs and surrogate pair escapes that clients' files
contain, and `json` reports no lines. Nothing here knows the meaning of keys.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import yaml

from portico.config_file.draft import ConfigFinding

FASTEST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
YAML_TAG = "tag:yaml.org,2002:"
MAX_DEPTH = 100
MAX_NODES = 500_000
"""Nested aliases can expand ten lines to a gigabyte."""


@dataclass(slots=True)
class ConfigNode:
    """A value, the line of it (or its key), and for a scalar its text as written."""

    value: Any
    """dict[str, ConfigNode], list[ConfigNode], str, int, float, bool or None."""
    line: int
    text: str = ""

    @property
    def entries(self) -> dict[str, "ConfigNode"] | None:
        if isinstance(self.value, dict):
            return cast("dict[str, ConfigNode]", self.value)
        return None

    @property
    def items(self) -> list["ConfigNode"] | None:
        if isinstance(self.value, list):
            return cast("list[ConfigNode]", self.value)
        return None

    def to_plain(self) -> Any:
        if self.entries is not None:
            return {key: child.to_plain() for key, child in self.entries.items()}
        if self.items is not None:
            return [child.to_plain() for child in self.items]
        return self.value


class ConfigSyntaxError(Exception):
    """Invalid syntax; nothing after this position can be read."""

    def __init__(self, line: int, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.message = message
        self.advice = advice


def read_tree(
    data: bytes, file: str, loader: Any = FASTEST_LOADER
) -> tuple[ConfigNode | None, list[ConfigFinding]]:
    """Return the tree of a file (None if empty or unreadable), and its problems."""
    findings: list[ConfigFinding] = []
    try:
        text = decode_text(data)
        if not text.strip():
            return None, []
        if file.endswith((".json", ".jsonc")):
            return JsonReader(text, file, findings).read(), findings
        if file.endswith(".toml"):
            # imported late: few files are TOML
            from portico.config_file.toml_reader import read_toml

            return read_toml(text), findings
        if text.lstrip()[0] in "{/":
            # Flow YAML that is also JSON is read as JSON; otherwise YAML's errors are reported.
            try:
                return JsonReader(text, file, findings).read(), findings
            except ConfigSyntaxError:
                findings.clear()
        return YamlReader(file, findings).read(text, loader), findings
    except ConfigSyntaxError as error:
        return None, [*findings, ConfigFinding(file, error.line, "", error.message, error.advice)]


def decode_text(data: bytes) -> str:
    marks = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
    encoding = next((marks[mark] for mark in marks if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigSyntaxError(
            line, f"not {encoding} text (byte {error.start})", "Save the file as UTF-8."
        ) from None


class _TreeReader:
    def __init__(self, file: str, findings: list[ConfigFinding]) -> None:
        self.file = file
        self.findings = findings

    def add_entry(self, entries: dict[str, ConfigNode], key: str, node: ConfigNode) -> None:
        """Add an entry; of two with the same key the first is kept."""
        known = entries.setdefault(key, node)
        if known is not node:
            message = f"written twice: lines {known.line} and {node.line}"
            finding = ConfigFinding(self.file, node.line, key, message, "Keep one of them.")
            self.findings.append(finding)


class JsonReader(_TreeReader):
    """Reads JSON with comments, trailing commas and tabs; reports duplicate keys by line."""

    TOKEN = re.compile(
        r"""[\s\ufeff]+ | //[^\n]* | /\*.*?\*/
        | (?P<string>"(?:[^"\\\n]|\\.)*")
        | (?P<mark>[{}\[\]:,])
        | (?P<word>[^\s"{}\[\]:,/]+)""",
        re.VERBOSE | re.DOTALL,
    )

    def __init__(self, text: str, file: str, findings: list[ConfigFinding]) -> None:
        super().__init__(file, findings)
        self.text = text
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.tokens = self.scan()
        self.token_kind = ""
        self.token = ""
        self.position = 0

    def read(self) -> ConfigNode:
        self.advance()
        node = self.read_node(0)
        if self.token_kind:
            self.fail(f"expected the end of the file, found {self.token[:20]}")
        return node

    def scan(self) -> Iterator[tuple[str, str, int]]:
        position = 0
        length = len(self.text)
        while position < length:
            match = self.TOKEN.match(self.text, position)
            if match is None:
                self.position = position
                if self.text[position] == '"':
                    self.fail("this text is not closed before the line ends")
                self.fail("this comment is not closed")
            if match.lastgroup:
                yield match.lastgroup, match.group(), position
            position = match.end()
        yield "", "the end of the file", length

    def advance(self) -> None:
        self.token_kind, self.token, self.position = next(self.tokens)

    def get_line(self) -> int:
        return bisect_right(self.line_starts, self.position)

    def fail(self, message: str, advice: str = "") -> NoReturn:
        raise ConfigSyntaxError(self.get_line(), f"not JSON: {message}", advice)

    def read_node(self, depth: int) -> ConfigNode:
        if depth > MAX_DEPTH:
            self.fail(f"nested deeper than {MAX_DEPTH} levels")
        line = self.get_line()
        if self.token == "{":
            return ConfigNode(self.read_mapping(depth), line)
        if self.token == "[":
            return ConfigNode(self.read_sequence(depth), line)
        if self.token_kind == "string":
            value: Any = self.read_string()
            node = ConfigNode(value, line, value)
        elif self.token_kind == "word":
            try:
                node = ConfigNode(json.loads(self.token), line, self.token)
            except ValueError:
                self.fail(
                    f"expected a value, found {self.token[:20]}",
                    "Text stands between double quotes.",
                )
        else:
            self.fail(f"expected a value, found {self.token}")
        self.advance()
        return node

    def read_string(self) -> str:
        if "\\" not in self.token:
            return self.token[1:-1]
        try:
            return json.loads(self.token, strict=False)
        except ValueError:
            self.fail(
                "a backslash that escapes nothing",
                r"Write \\ for a backslash (paths on Windows need it).",
            )

    def read_mapping(self, depth: int) -> dict[str, ConfigNode]:
        entries: dict[str, ConfigNode] = {}
        self.advance()
        while self.token != "}":
            if self.token_kind != "string":
                self.fail(f"expected a key in double quotes, found {self.token[:20]}")
            key = self.read_string()
            line = self.get_line()
            self.advance()
            if self.token != ":":
                self.fail(f"expected : after the key {key!r}, found {self.token[:20]}")
            self.advance()
            node = self.read_node(depth + 1)
            node.line = line
            self.add_entry(entries, key, node)
            self.read_separator("}")
        self.advance()
        return entries

    def read_sequence(self, depth: int) -> list[ConfigNode]:
        items: list[ConfigNode] = []
        self.advance()
        while self.token != "]":
            items.append(self.read_node(depth + 1))
            self.read_separator("]")
        self.advance()
        return items

    def read_separator(self, end: str) -> None:
        if self.token == ",":
            self.advance()
        elif self.token != end:
            self.fail(
                f"expected , or {end}, found {self.token[:20]}", "A comma may be missing before it."
            )


class YamlReader(_TreeReader):
    """Reads YAML, with `<<` merges and aliases. Scalars keep their text, such as `NO` or `0123`.

    Built from parser events: the library's composer recurses in C, and a deeply nested file would
    crash the process.
    """

    def __init__(self, file: str, findings: list[ConfigFinding]) -> None:
        super().__init__(file, findings)
        self.loader: Any = None
        self.anchors: dict[str, ConfigNode] = {}
        self.count = 0

    def read(self, text: str, loader: Any) -> ConfigNode | None:
        try:
            self.loader = loader(text)
            return self.read_document()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            message = ", ".join(part for part in (error.context, error.problem) if part)
            raise ConfigSyntaxError(
                mark.line + 1 if mark else 1, f"not YAML: {message}", advise_yaml_error(message)
            ) from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise ConfigSyntaxError(
                line, f"not YAML: {error.reason}", "Remove the control character."
            ) from None
        finally:
            if self.loader is not None:
                self.loader.dispose()

    def read_document(self) -> ConfigNode | None:
        self.loader.get_event()
        if self.loader.check_event(yaml.StreamEndEvent):
            return None
        self.loader.get_event()
        root = self.read_node(self.loader.get_event(), 0)
        self.loader.get_event()
        after = self.loader.get_event()
        if not isinstance(after, yaml.StreamEndEvent):
            advice = "Keep one document; remove the --- lines."
            raise ConfigSyntaxError(get_event_line(after), "a second document", advice)
        return root

    def read_node(self, event: Any, depth: int) -> ConfigNode:
        line = get_event_line(event)
        if depth > MAX_DEPTH:
            raise ConfigSyntaxError(line, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent):
            known = self.anchors.get(str(event.anchor))
            if known is None:
                raise ConfigSyntaxError(
                    line, f"*{event.anchor} names nothing written before it, or what it stands in"
                )
            return self.copy_node(known, line)
        self.count_node(line)
        if isinstance(event, yaml.MappingStartEvent):
            self.require_plain_tag(event, "map")
            node = ConfigNode(self.read_mapping(depth), line)
        elif isinstance(event, yaml.SequenceStartEvent):
            self.require_plain_tag(event, "seq")
            items: list[ConfigNode] = []
            while not isinstance(inner := self.loader.get_event(), yaml.SequenceEndEvent):
                items.append(self.read_node(inner, depth + 1))
            node = ConfigNode(items, line)
        else:
            node = ConfigNode(self.read_scalar(event), line, str(event.value))
        if event.anchor is not None:
            self.anchors[str(event.anchor)] = node
        return node

    def count_node(self, line: int) -> None:
        self.count += 1
        if self.count > MAX_NODES:
            message = f"more than {MAX_NODES} values, aliases counted"
            raise ConfigSyntaxError(line, message, "Use fewer aliases of aliases.")

    def copy_node(self, node: ConfigNode, line: int) -> ConfigNode:
        """Copy an aliased node, because values are filled in in place."""
        self.count_node(line)
        if node.entries is not None:
            return ConfigNode(
                {key: self.copy_node(child, line) for key, child in node.entries.items()}, node.line
            )
        if node.items is not None:
            return ConfigNode([self.copy_node(child, line) for child in node.items], node.line)
        return ConfigNode(node.value, node.line, node.text)

    def read_mapping(self, depth: int) -> dict[str, ConfigNode]:
        entries: dict[str, ConfigNode] = {}
        merged: list[ConfigNode] = []
        while not isinstance(key := self.loader.get_event(), yaml.MappingEndEvent):
            line = get_event_line(key)
            if not isinstance(key, yaml.ScalarEvent):
                raise ConfigSyntaxError(line, "a key must be text")
            node = self.read_node(self.loader.get_event(), depth + 1)
            if self.get_tag(key) == "merge":
                merged += node.items if node.items is not None else [node]
                continue
            node.line = line
            self.add_entry(entries, key.value, node)
        for source in merged:
            if source.entries is None:
                raise ConfigSyntaxError(source.line, "<< takes a mapping or a list of mappings")
            for name, inherited in source.entries.items():
                entries.setdefault(name, inherited)
        return entries

    def read_scalar(self, event: yaml.ScalarEvent) -> Any:
        tag = self.get_tag(event)
        text = event.value
        if tag in ("str", "timestamp", "value") or (tag in ("int", "float") and ":" in text):
            # YAML 1.1 reads 22:22 as a base-60 number, which is never meant.
            return text
        if tag not in ("bool", "int", "float", "null"):
            self.require_plain_tag(event, "str")
        try:
            return self.loader.construct_object(yaml.ScalarNode(f"{YAML_TAG}{tag}", text))
        except ValueError:
            return text

    def get_tag(self, event: yaml.ScalarEvent) -> str:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self.loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        return str(tag).removeprefix(YAML_TAG)

    def require_plain_tag(self, event: Any, kind: str) -> None:
        if event.tag not in (None, "!", f"{YAML_TAG}{kind}"):
            message = f"the tag {event.tag} means nothing here"
            raise ConfigSyntaxError(get_event_line(event), message, "Write the plain value.")


def get_event_line(event: Any) -> int:
    return event.start_mark.line + 1


def advise_yaml_error(message: str) -> str:
    if "cannot start any token" in message:
        return "Indent with spaces, not tabs; put quotes around a text that begins with @, ` or %."
    if "mapping values are not allowed" in message:
        return "Put quotes around a text that contains `: `."
    if "could not find expected ':'" in message:
        return "A colon is missing on this line or the one before it."
    return ""
