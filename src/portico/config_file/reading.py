"""Bytes of a file → a tree of nodes that know their lines. YAML, JSON as editors write it, and TOML.

JSON has a reader of its own: YAML's refuses the comments, tabs and `\\ud83d\\ude00` pairs that clients' files have, and
`json` tells no lines. Nothing here knows what the keys mean.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import yaml

from portico.config_file.finding import Finding

FASTEST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
YAML_TAG = "tag:yaml.org,2002:"
DEEPEST = 100
MOST_NODES = 500_000
"""Aliases of aliases can write a gigabyte in ten lines."""


@dataclass(slots=True)
class Node:
    """A value, the line it (or its key) stands on, and, for a scalar, its text as written."""

    value: Any
    """dict[str, Node], list[Node], str, int, float, bool or None."""
    line: int
    text: str = ""

    @property
    def entries(self) -> dict[str, "Node"] | None:
        return cast("dict[str, Node]", self.value) if isinstance(self.value, dict) else None

    @property
    def items(self) -> list["Node"] | None:
        return cast("list[Node]", self.value) if isinstance(self.value, list) else None


class Unreadable(Exception):
    """The text is not what its language allows; nothing after this place can be read."""

    def __init__(self, line: int, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.line, self.message, self.advice = line, message, advice


def read_tree(data: bytes, file: str, loader: Any = FASTEST_LOADER) -> tuple[Node | None, list[Finding]]:
    """The tree of a file (None where it is empty or unreadable), and what is wrong with it."""
    findings: list[Finding] = []
    try:
        text = decode(data)
        if not text.strip():
            return None, []
        if file.endswith((".json", ".jsonc")):
            return JsonReader(text, file, findings).read(), findings
        if file.endswith(".toml"):
            from portico.config_file.toml_reading import read_toml  # one client's files are in it

            return read_toml(text), findings
        if text.lstrip()[0] in "{/":
            # Flow YAML that is also JSON is read as JSON; what only YAML allows falls through, with YAML's errors.
            try:
                return JsonReader(text, file, findings).read(), findings
            except Unreadable:
                findings.clear()
        return YamlReader(file, findings).read(text, loader), findings
    except Unreadable as error:
        return None, [*findings, Finding(file, error.line, "", error.message, error.advice)]


def decode(data: bytes) -> str:
    """Text of a file, whatever byte order mark an editor or shell put before it."""
    marks = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
    encoding = next((marks[mark] for mark in marks if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable(line, f"not {encoding} text (byte {error.start})", "Save the file as UTF-8.") from None


class JsonReader:
    """JSON with comments, trailing commas, tabs and duplicate keys told apart by line."""

    TOKEN = re.compile(
        r"""[\s\ufeff]+ | //[^\n]* | /\*.*?\*/
        | (?P<string>"(?:[^"\\\n]|\\.)*")
        | (?P<mark>[{}\[\]:,])
        | (?P<word>[^\s"{}\[\]:,/]+)""",
        re.VERBOSE | re.DOTALL,
    )

    def __init__(self, text: str, file: str, findings: list[Finding]) -> None:
        self.text, self.file, self.findings = text, file, findings
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.tokens = self.scan()
        self.kind, self.found, self.at = "", "", 0

    def read(self) -> Node:
        self.advance()
        node = self.node(0)
        if self.kind:
            self.fail(f"expected the end of the file, found {self.found[:20]}")
        return node

    def scan(self) -> Iterator[tuple[str, str, int]]:
        position, length = 0, len(self.text)
        while position < length:
            match = self.TOKEN.match(self.text, position)
            if match is None:
                self.at = position
                self.fail(
                    "this text is not closed before the line ends"
                    if self.text[position] == '"'
                    else "this comment is not closed"
                )
            if match.lastgroup:
                yield match.lastgroup, match.group(), position
            position = match.end()
        yield "", "the end of the file", length

    def advance(self) -> None:
        self.kind, self.found, self.at = next(self.tokens)

    def line(self) -> int:
        return bisect_right(self.starts, self.at)

    def fail(self, message: str, advice: str = "") -> NoReturn:
        raise Unreadable(self.line(), f"not JSON: {message}", advice)

    def node(self, depth: int) -> Node:
        if depth > DEEPEST:
            self.fail(f"nested deeper than {DEEPEST} levels")
        line = self.line()
        if self.found == "{":
            return Node(self.mapping(depth), line)
        if self.found == "[":
            return Node(self.sequence(depth), line)
        if self.kind == "string":
            value: Any = self.string()
            node = Node(value, line, value)
        elif self.kind == "word":
            try:
                node = Node(json.loads(self.found), line, self.found)
            except ValueError:
                self.fail(f"expected a value, found {self.found[:20]}", "Text stands between double quotes.")
        else:
            self.fail(f"expected a value, found {self.found}")
        self.advance()
        return node

    def string(self) -> str:
        if "\\" not in self.found:
            return self.found[1:-1]
        try:
            return json.loads(self.found, strict=False)
        except ValueError:
            self.fail("a backslash that escapes nothing", r"Write \\ for a backslash (paths on Windows need it).")

    def mapping(self, depth: int) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        self.advance()
        while self.found != "}":
            if self.kind != "string":
                self.fail(f"expected a key in double quotes, found {self.found[:20]}")
            key, line = self.string(), self.line()
            self.advance()
            if self.found != ":":
                self.fail(f"expected : after the key {key!r}, found {self.found[:20]}")
            self.advance()
            node = self.node(depth + 1)
            node.line = line
            keep_first(entries, key, node, self.file, self.findings)
            self.separator("}")
        self.advance()
        return entries

    def sequence(self, depth: int) -> list[Node]:
        items: list[Node] = []
        self.advance()
        while self.found != "]":
            items.append(self.node(depth + 1))
            self.separator("]")
        self.advance()
        return items

    def separator(self, end: str) -> None:
        if self.found == ",":
            self.advance()
        elif self.found != end:
            self.fail(f"expected , or {end}, found {self.found[:20]}", "A comma may be missing before it.")


class YamlReader:
    """YAML, with `<<` merges and aliases. Scalars keep their text: `NO` and `0123` are good values for a variable.

    Built from parser events: the library's composer recurses in C, and a file nested deeply enough takes the process
    down with it.
    """

    def __init__(self, file: str, findings: list[Finding]) -> None:
        self.file, self.findings = file, findings
        self.loader: Any = None
        self.anchors: dict[str, Node] = {}
        self.count = 0

    def read(self, text: str, loader: Any) -> Node | None:
        try:
            self.loader = loader(text)
            return self.document()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            message = ", ".join(part for part in (error.context, error.problem) if part)
            raise Unreadable(mark.line + 1 if mark else 1, f"not YAML: {message}", yaml_advice(message)) from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise Unreadable(line, f"not YAML: {error.reason}", "Remove the control character.") from None
        finally:
            if self.loader is not None:
                self.loader.dispose()

    def document(self) -> Node | None:
        self.loader.get_event()
        if self.loader.check_event(yaml.StreamEndEvent):
            return None
        self.loader.get_event()
        root = self.node(self.loader.get_event(), 0)
        self.loader.get_event()
        after = self.loader.get_event()
        if not isinstance(after, yaml.StreamEndEvent):
            raise Unreadable(line_of(after), "a second document", "Keep one document; remove the --- lines.")
        return root

    def node(self, event: Any, depth: int) -> Node:
        line = line_of(event)
        if depth > DEEPEST:
            raise Unreadable(line, f"nested deeper than {DEEPEST} levels")
        if isinstance(event, yaml.AliasEvent):
            known = self.anchors.get(str(event.anchor))
            if known is None:
                raise Unreadable(line, f"*{event.anchor} names nothing written before it, or what it stands in")
            return self.copied(known, line)
        self.counted(line)
        if isinstance(event, yaml.MappingStartEvent):
            self.untagged(event, "map")
            node = Node(self.mapping(depth), line)
        elif isinstance(event, yaml.SequenceStartEvent):
            self.untagged(event, "seq")
            items: list[Node] = []
            while not isinstance(inner := self.loader.get_event(), yaml.SequenceEndEvent):
                items.append(self.node(inner, depth + 1))
            node = Node(items, line)
        else:
            node = Node(self.scalar(event), line, str(event.value))
        if event.anchor is not None:
            self.anchors[str(event.anchor)] = node
        return node

    def counted(self, line: int) -> None:
        self.count += 1
        if self.count > MOST_NODES:
            raise Unreadable(line, f"more than {MOST_NODES} values, aliases counted", "Use fewer aliases of aliases.")

    def copied(self, node: Node, line: int) -> Node:
        """An alias has values of its own, since they are filled in where they stand."""
        self.counted(line)
        if node.entries is not None:
            return Node({key: self.copied(child, line) for key, child in node.entries.items()}, node.line)
        if node.items is not None:
            return Node([self.copied(child, line) for child in node.items], node.line)
        return Node(node.value, node.line, node.text)

    def mapping(self, depth: int) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        merged: list[Node] = []
        while not isinstance(key := self.loader.get_event(), yaml.MappingEndEvent):
            line = line_of(key)
            if not isinstance(key, yaml.ScalarEvent):
                raise Unreadable(line, "a key must be text")
            node = self.node(self.loader.get_event(), depth + 1)
            if self.tag_of(key) == "merge":
                merged += node.items if node.items is not None else [node]
                continue
            node.line = line
            keep_first(entries, key.value, node, self.file, self.findings)
        for source in merged:
            if source.entries is None:
                raise Unreadable(source.line, "<< takes a mapping or a list of mappings")
            for name, inherited in source.entries.items():
                entries.setdefault(name, inherited)
        return entries

    def scalar(self, event: yaml.ScalarEvent) -> Any:
        tag, text = self.tag_of(event), event.value
        if tag in ("str", "timestamp", "value") or (tag in ("int", "float") and ":" in text):
            # YAML 1.1 reads 22:22 as a number in base sixty; nobody writing a configuration does.
            return text
        if tag not in ("bool", "int", "float", "null"):
            self.untagged(event, "str")
        try:
            return self.loader.construct_object(yaml.ScalarNode(f"{YAML_TAG}{tag}", text))
        except ValueError:
            return text

    def tag_of(self, event: yaml.ScalarEvent) -> str:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self.loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        return str(tag).removeprefix(YAML_TAG)

    def untagged(self, event: Any, kind: str) -> None:
        if event.tag not in (None, "!", f"{YAML_TAG}{kind}"):
            raise Unreadable(line_of(event), f"the tag {event.tag} means nothing here", "Write the plain value.")


def line_of(event: Any) -> int:
    return event.start_mark.line + 1


def keep_first(entries: dict[str, Node], key: str, node: Node, file: str, findings: list[Finding]) -> None:
    if key in entries:
        findings.append(
            Finding(
                file, node.line, key, f"written twice: lines {entries[key].line} and {node.line}", "Keep one of them."
            )
        )
    else:
        entries[key] = node


def yaml_advice(message: str) -> str:
    if "cannot start any token" in message:
        return "Indent with spaces, not tabs; put quotes around a text that begins with @, ` or %."
    if "mapping values are not allowed" in message:
        return "Put quotes around a text that contains `: `."
    if "could not find expected ':'" in message:
        return "A colon is missing on this line or the one before it."
    return ""
