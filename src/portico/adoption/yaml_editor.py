"""Changes single entries of a YAML text; everything else stays byte for byte. Pure.

Text in, text out, in block and in flow style. A change may come out wrong where a file is written
in an unusual way (aliases, keys of several lines), so the caller parses every result:
`config_document` does.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import yaml

from portico.adoption.json_editor import detect_newline

HEADER = """\
# The servers behind Portico: `portico add` adds one, `portico doctor` examines this file.
# Secrets are variables here; their values are in the env_file, which only you can read.
"""


class _YamlDumper(yaml.SafeDumper):
    """Block mappings, flow lists, every text on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _YamlDumper, value: str) -> yaml.ScalarNode:
    style = '"' if any(char in value for char in "\n\r\t\x85\u2028\u2029\ufeff") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _represent_list(dumper: _YamlDumper, value: list[Any]) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)


_YamlDumper.add_representer(str, _represent_text)
_YamlDumper.add_representer(list, _represent_list)


def dump_yaml(value: Mapping[str, Any], indent: int = 0) -> str:
    """Render keys and values as YAML lines."""
    text = yaml.dump(
        dict(value),
        Dumper=_YamlDumper,
        sort_keys=False,
        allow_unicode=True,
        width=float("inf"),
        default_flow_style=False,
    )
    return "".join(f"{' ' * indent}{line}\n" for line in text.splitlines())


def render_servers(
    servers: Mapping[str, Mapping[str, Any]], comments: Mapping[str, str], indent: int
) -> str:
    """Render entries, each under a comment with its origin."""
    return "".join(
        _render_entry({name: dict(entry)}, comments.get(name, ""), indent)
        for name, entry in servers.items()
    )


def render_new_file(
    servers: Mapping[str, Mapping[str, Any]], comments: Mapping[str, str], env_file: str | None
) -> str:
    env = f"{dump_yaml({'env_file': env_file})}\n" if env_file else ""
    return f"{HEADER}{env}servers:\n{render_servers(servers, comments, 2)}"


Pair = tuple[yaml.Node, yaml.Node]
"""A key and its value in a mapping."""


def set_value(text: str, keys: Sequence[str], value: Any, comment: str = "") -> str:
    """Return the text with this value at these keys; missing mappings are created.

    A new entry goes to the end of its mapping, a comment above it.
    """
    pairs = _find_pairs(text, keys)
    if len(pairs) == len(keys):
        return _replace_value(text, pairs[-1], value)
    root = _compose(text)
    missing = keys[len(pairs)]
    for key in reversed(keys[len(pairs) + 1 :]):
        value = {key: value}
    new = {missing: value}
    node = root
    if pairs:
        node = pairs[-1][1]
    if isinstance(node, yaml.MappingNode) and node.value:
        if node.flow_style:
            return _insert_in_flow(text, node, _dump_flow(new)[1:-1])
        block = _render_entry(new, comment, node.start_mark.column)
        return _insert_lines(text, _find_last_line(node) + 1, block)
    if node is None or not pairs:
        return _insert_lines(text, text.count("\n") + 1, _render_entry(new, comment, 0))
    return _fill_empty_value(text, pairs, new, comment)


def insert_before(text: str, keys: Sequence[str], value: Mapping[str, Any]) -> str:
    """Return the text with an entry on the line above another one, in the same mapping."""
    key, _ = _find_pair(text, keys)
    if text[text.rfind("\n", 0, key.start_mark.index) + 1 : key.start_mark.index].strip():
        at = key.start_mark.index
        return f"{text[:at]}{_dump_flow(value)[1:-1]}, {text[at:]}"
    return _insert_lines(text, key.start_mark.line, dump_yaml(value, key.start_mark.column))


def remove(text: str, keys: Sequence[str]) -> str:
    """Return the text without the entry at these keys, and without the comment lines above it."""
    parent = _find_mapping(text, keys[:-1])
    pairs = cast("list[Pair]", parent.value)
    key, value = next(pair for pair in pairs if pair[0].value == keys[-1])
    if parent.flow_style:
        items = [(first.start_mark.index, last.end_mark.index) for first, last in pairs]
        index = [first for first, _ in pairs].index(key)
        return _remove_from_flow(text, items, index)
    lines = text.split("\n")
    start = key.start_mark.line
    while start and _is_comment_at(lines[start - 1], key.start_mark.column):
        start -= 1
    end = _find_last_line(value) + 1
    while end < len(lines) and _is_comment_below(lines[end], key.start_mark.column):
        end += 1
    del lines[start:end]
    text = "\n".join(lines)
    if len(pairs) == 1 and len(keys) > 1:
        return _replace_value(text, _find_pairs(text, keys[:-1])[-1], {})
    return text


def rename_key(text: str, keys: Sequence[str], name: str) -> str:
    """Return the text with another name for the entry at these keys."""
    key, _ = _find_pair(text, keys)
    return _replace_scalar(text, key, name)


def add_item(text: str, keys: Sequence[str], item: str | Mapping[str, Any]) -> str:
    """Return the text with an item at the end of the list at these keys, which may be missing."""
    pairs = _find_pairs(text, keys)
    node = pairs[-1][1] if len(pairs) == len(keys) else None
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        return set_value(text, keys, [item])
    if node.flow_style:
        return _insert_in_flow(text, node, _dump_flow(item))
    block = f"{' ' * node.start_mark.column}- {_dump_flow(item)}\n"
    return _insert_lines(text, _find_last_line(node) + 1, block)


def insert_entry(text: str, keys: Sequence[str], index: int, entry: Mapping[str, Any]) -> str:
    """Return the text with a mapping at this place of the list at these keys, in one line."""
    pairs = _find_pairs(text, keys)
    node = pairs[-1][1] if len(pairs) == len(keys) else None
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        return set_value(text, keys, [dict(entry)])
    written = _dump_flow(dict(entry))
    items = cast("list[yaml.Node]", node.value)
    if node.flow_style:
        if index >= len(items):
            return _insert_in_flow(text, node, written)
        at = items[index].start_mark.index
        return f"{text[:at]}{written}, {text[at:]}"
    column = node.start_mark.column
    line = _find_last_line(node) + 1
    if index < len(items):
        line = _skip_comments_above(text, items[index].start_mark.line, column)
    return _insert_lines(text, line, f"{' ' * column}- {written}\n")


def _skip_comments_above(text: str, line: int, column: int) -> int:
    """Return the first of the comment lines above a line."""
    lines = text.split("\n")
    while line and _is_comment_at(lines[line - 1], column):
        line -= 1
    return line


def remove_item(text: str, keys: Sequence[str], item: str) -> str:
    """Return the text without an item of the list at these keys."""
    nodes = cast("list[yaml.Node]", _find_pair(text, keys)[1].value)
    index = next(at for at, node in enumerate(nodes) if node.value == item)
    return remove_entry(text, keys, index)


def remove_entry(text: str, keys: Sequence[str], index: int) -> str:
    """Return the text without what is at this place of the list at these keys, and without the
    comment lines above it."""
    nodes = cast("list[yaml.Node]", _find_pair(text, keys)[1].value)
    if len(nodes) == 1:
        return set_value(text, keys, [])
    if cast("yaml.SequenceNode", _find_pair(text, keys)[1]).flow_style:
        spans = [(node.start_mark.index, node.end_mark.index) for node in nodes]
        return _remove_from_flow(text, spans, index)
    lines = text.split("\n")
    first = nodes[index].start_mark.line
    if isinstance(nodes[index], yaml.MappingNode):
        column = _find_pair(text, keys)[1].start_mark.column
        first = _skip_comments_above(text, first, column)
    del lines[first : _find_last_line(nodes[index]) + 1]
    return "\n".join(lines)


def replace_item(text: str, keys: Sequence[str], old: str, new: str) -> str:
    """Return the text with another text for an item of the list at these keys."""
    nodes = cast("list[yaml.Node]", _find_pair(text, keys)[1].value)
    return _replace_scalar(text, next(node for node in nodes if node.value == old), new)


def replace_in_item(
    text: str, keys: Sequence[str], position: int, key: str, old: str, new: str
) -> str:
    """Return the text with another text at a key, or in a list there, of one mapping of a list."""
    entries = cast("list[yaml.MappingNode]", _find_pair(text, keys)[1].value)
    pairs = cast("list[Pair]", entries[position].value)
    node = next(value for name, value in pairs if name.value == key)
    nodes = [node]
    if isinstance(node, yaml.SequenceNode):
        nodes = cast("list[yaml.Node]", node.value)
    return _replace_scalar(text, next(one for one in nodes if one.value == old), new)


def _compose(text: str) -> yaml.Node | None:
    return cast("yaml.Node | None", yaml.compose(text, Loader=yaml.SafeLoader))


def _find_pairs(text: str, keys: Sequence[str]) -> list[Pair]:
    """Return the existing pairs on the path to these keys."""
    node = _compose(text)
    found: list[Pair] = []
    for key in keys:
        pairs: list[Pair] = []
        if isinstance(node, yaml.MappingNode):
            pairs = cast("list[Pair]", node.value)
        pair = next((pair for pair in pairs if pair[0].value == key), None)
        if pair is None:
            return found
        found.append(pair)
        node = pair[1]
    return found


def _find_pair(text: str, keys: Sequence[str]) -> Pair:
    pairs = _find_pairs(text, keys)
    if len(pairs) < len(keys):
        raise KeyError(keys[-1])
    return pairs[-1]


def _find_mapping(text: str, keys: Sequence[str]) -> yaml.MappingNode:
    node = _compose(text)
    if keys:
        node = _find_pair(text, keys)[1]
    return cast("yaml.MappingNode", node)


def _replace_scalar(text: str, node: yaml.Node, value: str) -> str:
    return text[: node.start_mark.index] + _dump_flow(value) + text[node.end_mark.index :]


def _replace_value(text: str, pair: Pair, value: Any) -> str:
    key, node = pair
    start = node.start_mark.index
    end = node.end_mark.index
    if _is_block(node):
        lines = text.split("\n")
        end = sum(len(line) + 1 for line in lines[: _find_last_line(node) + 1]) - 1
        start = text.index(":", key.end_mark.index) + 1
    if text[start - 1] in " \t":
        return text[:start] + _dump_flow(value) + text[end:]
    return f"{text[:start]} {_dump_flow(value)}{text[end:]}"


def _fill_empty_value(text: str, pairs: Sequence[Pair], new: Mapping[str, Any], note: str) -> str:
    """Put the first entry into an empty mapping: below its key, or inside braces."""
    key, node = pairs[-1]
    start = node.start_mark.index
    end = node.end_mark.index
    line_start = text.rfind("\n", 0, key.start_mark.index) + 1
    is_in_flow = bool(text[line_start : key.start_mark.index].strip())
    if is_in_flow or node.start_mark.line != key.start_mark.line:
        return text[:start] + _dump_flow(new) + text[end:]
    emptied = text[:start] + text[end:]
    if end > start:
        emptied = text[:start].rstrip(" ") + text[end:]
    block = _render_entry(new, note, key.start_mark.column + 2)
    return _insert_lines(emptied, key.start_mark.line + 1, block)


def _insert_in_flow(text: str, node: yaml.CollectionNode, written: str) -> str:
    """Insert after the last item in brackets: on a line of its own where that item has one."""
    values = cast("list[Any]", node.value)
    last = values[-1]
    first_node = cast("yaml.Node", last)
    last_node = first_node
    if isinstance(node, yaml.MappingNode):
        first_node, last_node = cast("Pair", last)
    at = last_node.end_mark.index
    line_start = text.rfind("\n", 0, first_node.start_mark.index) + 1
    indent = text[line_start : first_node.start_mark.index]
    separator = " "
    if line_start and not indent.strip():
        separator = detect_newline(text) + indent
    return f"{text[:at]},{separator}{written}{text[at:]}"


def _remove_from_flow(text: str, items: Sequence[tuple[int, int]], index: int) -> str:
    """Remove an item in brackets with the comma before or after it."""
    start, end = items[index]
    if index + 1 < len(items):
        end = items[index + 1][0]
    elif index:
        start = items[index - 1][1]
    return text[:start] + text[end:]


def _insert_lines(text: str, number: int, block: str) -> str:
    """Insert lines before the line with this number, with the line ends of the text."""
    newline = detect_newline(text)
    lines = text.split("\n")
    before = "\n".join(lines[:number])
    if number < len(lines):
        before += "\n" * bool(number)
    elif before and not before.endswith("\n"):
        before += newline
    return before + block.replace("\n", newline) + "\n".join(lines[number:])


def _render_entry(entry: Mapping[str, Any], comment: str, indent: int) -> str:
    written = dump_yaml(entry, indent)
    if comment:
        # A file name may contain anything, even a line break.
        printable = "".join(char if char.isprintable() else "?" for char in comment)
        return f"{' ' * indent}# {printable}\n{written}"
    return written


def _dump_flow(value: Any) -> str:
    dumped = yaml.dump(
        value, Dumper=_YamlDumper, default_flow_style=True, allow_unicode=True, sort_keys=False,
        width=float("inf"),
    )  # fmt: skip
    return dumped.removesuffix("\n").removesuffix("\n...")


def _is_comment_at(line: str, column: int) -> bool:
    return line.startswith(f"{' ' * column}#")


def _is_comment_below(line: str, column: int) -> bool:
    stripped = line.lstrip(" ")
    return stripped.startswith("#") and len(line) - len(stripped) > column


def _is_block(node: yaml.Node) -> bool:
    if isinstance(node, yaml.CollectionNode):
        return bool(node.value) and not node.flow_style
    return isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")


def _find_last_line(node: yaml.Node) -> int:
    """Return the last line that a node occupies."""
    if isinstance(node, yaml.MappingNode) and node.value and not node.flow_style:
        pairs = cast("list[tuple[yaml.Node, yaml.Node]]", node.value)
        return max(max(_find_last_line(key), _find_last_line(value)) for key, value in pairs[-1:])
    if isinstance(node, yaml.SequenceNode) and node.value and not node.flow_style:
        return _find_last_line(cast("list[yaml.Node]", node.value)[-1])
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return max(node.start_mark.line, node.end_mark.line - 1)
    return node.end_mark.line
