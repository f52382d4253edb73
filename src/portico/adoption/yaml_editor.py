"""Writes servers as YAML, also into an existing file, whose text stays byte for byte. Pure.

If that cannot be done safely (a file in braces, a mapping that is an alias) the result is None, and
the person is shown what to add.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import yaml

from portico.config_file.tree_reader import ConfigNode, read_tree

HEADER = """\
# The servers behind Portico, as `portico adopt` found them. `portico doctor` examines this file.
# Secrets are variables here; their values are in the env_file, which only you can read.
"""


class _YamlDumper(yaml.SafeDumper):
    """Block mappings, flow lists, every text on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _YamlDumper, value: str) -> yaml.ScalarNode:
    if any(char in value for char in "\n\r\t\x85\u2028\u2029\ufeff"):
        style = '"'
    else:
        style = None
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
    return "".join(f"{' ' * indent}{line}\n" for line in text.rstrip("\n").split("\n"))


def render_servers(
    servers: Mapping[str, Mapping[str, Any]], comments: Mapping[str, str], indent: int
) -> str:
    """Render entries, each under a comment with its origin."""
    parts: list[str] = []
    for name, entry in servers.items():
        if remark := comments.get(name):
            # A file name may contain anything, even a line break.
            printable = "".join(char if char.isprintable() else "?" for char in remark)
            parts.append(f"{' ' * indent}# {printable}\n")
        parts.append(dump_yaml({name: dict(entry)}, indent))
    return "".join(parts)


def render_new_file(
    servers: Mapping[str, Mapping[str, Any]], comments: Mapping[str, str], env_file: str | None
) -> str:
    """Render a complete file."""
    if env_file:
        env = f"{dump_yaml({'env_file': env_file})}\n"
    else:
        env = ""
    return f"{HEADER}{env}servers:\n{render_servers(servers, comments, 2)}"


def insert_servers(
    data: bytes,
    servers: Mapping[str, Mapping[str, Any]],
    comments: Mapping[str, str],
    env_file: str | None,
) -> bytes | None:
    """Add servers, and `env_file` if there is none, to a file; None if that is not safely
    possible.
    """
    if data.startswith(b"\xef\xbb\xbf"):
        mark = b"\xef\xbb\xbf"
    else:
        mark = b""
    try:
        text = data[len(mark) :].decode()
    except UnicodeDecodeError:
        return None
    before, problems = read_tree(data, "x.yaml")
    if problems or (before is not None and before.entries is None):
        return None
    added = {"servers": {name: dict(entry) for name, entry in servers.items()}}
    for changed in _iter_attempts(text, servers, comments, env_file):
        after, new_problems = read_tree(changed.encode(), "x.yaml")
        if (
            not new_problems
            and after is not None
            and _to_plain(after) == _build_expected(before, added, env_file)
        ):
            return mark + changed.encode()
    return None


def _build_expected(
    before: ConfigNode | None, added: Mapping[str, Any], env_file: str | None
) -> Any:
    known: dict[str, Any] = (_to_plain(before) if before is not None else None) or {}
    servers = {**(known.get("servers") or {}), **_to_plain_values(added["servers"])}
    return {**known, **({"env_file": env_file} if env_file else {}), "servers": servers}


def _iter_attempts(
    text: str,
    servers: Mapping[str, Mapping[str, Any]],
    comments: Mapping[str, str],
    env_file: str | None,
) -> Iterator[str]:
    """Yield candidate texts, the neatest first; the caller checks them."""
    if "\r\n" in text:
        ends = "\r\n"
    else:
        ends = "\n"
    try:
        root = cast("yaml.Node | None", yaml.compose(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError):
        return
    if env_file:
        env = dump_yaml({"env_file": env_file})
    else:
        env = ""
    if root is None:
        yield _ensure_final_newline(text, ends) + _convert_newlines(
            render_new_file(servers, comments, env_file), ends
        )
        return
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return
    pairs = cast("list[tuple[yaml.Node, yaml.Node]]", root.value)
    margin = root.start_mark.column
    pair = next((pair for pair in pairs if pair[0].value == "servers"), None)
    if pair is None:
        block = _indent(f"{env}servers:\n", margin) + render_servers(servers, comments, margin + 2)
        yield _ensure_final_newline(text, ends) + _convert_newlines(block, ends)
        return
    key, value = pair
    lines = text.split("\n")
    top = key.start_mark.line
    env = _convert_newlines(_indent(env, margin), ends)
    if isinstance(value, yaml.MappingNode) and value.value and not value.flow_style:
        indent = value.start_mark.column
        block = _convert_newlines(render_servers(servers, comments, indent), ends)
        for line in (_find_last_line(value) + 1, value.start_mark.line, top + 1):
            yield _insert_blocks(lines, {line: block, top: env}, ends)
    elif value.start_mark.line == top and (
        not value.value or value.tag == "tag:yaml.org,2002:null"
    ):
        # `servers:`, `servers: {}` or `servers: null`, possibly followed by a comment.
        block = _convert_newlines(render_servers(servers, comments, margin + 2), ends)
        first = value.start_mark.index
        last = value.end_mark.index
        emptied = f"{text[:first].rstrip(' ') if last > first else text[:first]}{text[last:]}"
        yield _insert_blocks(emptied.split("\n"), {top + 1: block, top: env}, ends)


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


def _insert_blocks(lines: list[str], blocks: Mapping[int, str], ends: str) -> str:
    """Insert texts before the lines with these numbers."""
    parts: list[str] = []
    for number in range(len(lines) + 1):
        if block := blocks.get(number):
            if number >= len(lines) and parts and not parts[-1].endswith("\n"):
                parts.append(ends)
            parts.append(block)
        if number < len(lines):
            parts.append(lines[number] + ("\n" if number < len(lines) - 1 else ""))
    return "".join(parts)


def _ensure_final_newline(text: str, ends: str) -> str:
    if not text or text.endswith("\n"):
        return text
    return text + ends


def _convert_newlines(text: str, ends: str) -> str:
    if ends == "\n":
        return text
    return text.replace("\n", ends)


def _indent(text: str, margin: int) -> str:
    if text:
        return "".join(f"{' ' * margin}{line}\n" for line in text.splitlines())
    return ""


def _to_plain(node: ConfigNode) -> Any:
    if node.entries is not None:
        return {key: _to_plain(child) for key, child in node.entries.items()}
    if node.items is not None:
        return [_to_plain(child) for child in node.items]
    return node.value


def _to_plain_values(value: Any) -> Any:
    """Return a value as YAML reads it back: with lists for tuples."""
    if isinstance(value, Mapping):
        return {
            str(key): _to_plain_values(inner)
            for key, inner in cast("Mapping[Any, Any]", value).items()
        }
    if isinstance(value, (list, tuple)):
        return [_to_plain_values(inner) for inner in cast("list[Any]", value)]
    return value
