"""How a tool is shown to a model: one line, the compact typed form, or everything.

Pure functions of a tool. Names, types, enums, defaults and limits are written so that a caller can use them as they
stand; text from the server loses what cannot be seen and nothing else. Raw JSON stays raw.
"""

import copy
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from portico.catalog.schema import ABSENT, Outline, Param, glance, outline
from portico.catalog.tool import Tool
from portico.catalog.visible import literal, shown
from portico.disclosure.example import example
from portico.disclosure.tokens import count
from portico.upstream import jsontext

_SENTENCE_TOKENS = 30
_PARAMS_TOKENS = 26
_REQUIRED_TOKENS = 60
"""Required names may use this much, where types and optional names stop at `_PARAMS_TOKENS`."""
_INLINE_CHARS = 90
_ALSO = 5
"""Tools of other servers that do the same are named, but do not fill the page that they were taken from."""
_RETURNS_CHARS = 300
_REPEAT_CHARS = 200
"""Fields that were shown before are pointed to when their JSON is longer than this."""
_FIELD_KEYS = ("properties", "required", "patternProperties", "additionalProperties", "propertyNames")

_BARE_NAME = re.compile(r"[A-Za-z_$@][\w$@-]*", re.ASCII)
_MARKUP = re.compile(r"\*\*|^[ \t]*<[A-Za-z][\w-]*>|!?\[([^\]]*)\]\([^)]*\)", re.MULTILINE)
_CLOSING_TAG = re.compile(r"</[A-Za-z][\w-]*>")
_BREAK = re.compile(r"\n[ \t]*\n|\n[ \t]*(?=[-*•#>|`<]|\d+[.)]\s|[A-Z][\w ]{0,30}:)")
_SENTENCE_END = re.compile(r"[.!?][)\"'”’*_`\]]*(?=\s|$)|[。！？]")
_NOT_AN_END = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|incl|esp|no|inc|ltd|st|dr|mr|ms|a\.k\.a|[a-z])|^\d+)\.$", re.IGNORECASE
)


def brief(tool: Tool, also: Sequence[str] = ()) -> str:
    """One line: address, parameters, first sentence, and tools of other servers that do the same."""
    line = f"{_flat(shown(tool.address))}({_signature(tool)})"
    sentence = first_sentence(tool.description) or first_sentence(tool.title)
    line = f"{line} — {sentence}" if sentence else line
    return f"{line} (also: {addresses(also)})" if also else line


def addresses(names: Sequence[str], most: int = _ALSO) -> str:
    """Tools by address, as many as a line can bear."""
    rest = [f"…+{len(names) - most}"] if len(names) > most else []
    return ", ".join([*(_flat(shown(name)) for name in names[:most]), *rest])


def schema(tool: Tool, also: Sequence[str] = ()) -> str:
    """The compact typed form: the whole description and every parameter with all a caller needs to know of it."""
    tree = outline(tool.definition.get("inputSchema"))
    hints = ", ".join(_hints(tool.annotations))
    text = _prose(tool.description) or _prose(tool.title)
    lines = _arguments(tree)
    head = _flat(shown(tool.address)) + ("" if lines else "()") + (f" [{hints}]" if hints else "")
    if text:
        head = f"{head} — {text}"
    if "\n" in text and lines:
        lines.insert(0, "Parameters:")
    output = tool.definition.get("outputSchema")
    if isinstance(output, dict):
        lines.append(f"returns: {_returns(outline(output))}")
    if also:
        lines.append(f"also: {addresses(also)}")
    return "\n".join((head, *lines))


def full(tool: Tool, *, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Everything that is known of a tool; `definition` is what its server listed, every key of it."""
    return {
        **(extra or {}),
        "tool": tool.address,
        "server": tool.server,
        "upstream_name": tool.upstream_name,
        "hash": tool.hash,
        "tags": list(tool.tags),
        "warnings": list(tool.warnings),
        "example": example(tool),
        "definition": copy.deepcopy(dict(tool.definition)),
    }


def full_text(tool: Tool, *, extra: Mapping[str, Any] | None = None) -> str:
    """The typed form, an example, then every other key of the raw definition, each as one line of JSON."""
    facts = {**(extra or {}), "warnings": list(tool.warnings), "example": example(tool)}
    raw = {key: value for key, value in tool.definition.items() if key not in ("name", "description")}
    shared = {key: value for key, value in facts.items() if value and key not in raw}
    lines = (f"{_name(key)}: {jsontext.dumps(value).decode()}" for key, value in {**shared, **raw}.items())
    return "\n".join((schema(tool), *lines))


def first_sentence(text: str, limit: int = _SENTENCE_TOKENS) -> str:
    """The first sentence in one line of at most about `limit` tokens, cut at a word."""
    text = _MARKUP.sub(r"\1", _CLOSING_TAG.sub("\n\n", shown(text[:2000]))).strip(" \n\t#*-_=")
    text = _flat(_BREAK.split(text, maxsplit=1)[0])
    for end in _SENTENCE_END.finditer(text):
        head, tail = text[: end.end()], text[end.end() :].lstrip()
        too_short = len(head) < 24 and len(head.split()) < 3 and head.isascii()
        if not (too_short or tail[:1].islower() or _NOT_AN_END.search(text[: end.start() + 1])):
            text = head
            break
    if count(text) <= limit:
        return text
    while (cost := count(text)) > limit - 1:
        shorter = text[: int(len(text) * (limit - 1) / cost)] if len(text) > cost else text[:-1]
        space = shorter.rfind(" ")
        text = shorter[:space] if space > len(shorter) // 2 else shorter
    return text.rstrip(" ,;:(-–—.\"'`") + "…"


def _signature(tool: Tool) -> str:
    entries = list(glance(tool.definition.get("inputSchema")))
    required = [(_name(name), kind) for name, needed, kind in entries if needed]
    costs = [count(f" {name}") + 1 for name, _ in required]
    spare = _PARAMS_TOKENS - sum(costs)
    used, parts = 0, list[str]()
    for (name, kind), cost in zip(required, costs, strict=True):
        if used + cost > _REQUIRED_TOKENS:
            parts.append(f"…+{len(required) - len(parts)} required")
            break
        used += cost
        kind_cost = _kind_cost(kind)
        if kind_cost and kind_cost <= spare:
            name, spare, used = f"{name}: {kind}", spare - kind_cost, used + kind_cost
        parts.append(name)
    optional = entries[len(required) :]
    for done, (raw_name, _, kind) in enumerate(optional):
        name = f"{_name(raw_name)}?"
        used += count(f" {name}") + 1
        if used > _PARAMS_TOKENS:
            parts.append(f"…+{len(optional) - done}")
            break
        kind_cost = _kind_cost(kind)
        if kind_cost and used + kind_cost <= _PARAMS_TOKENS:
            name, used = f"{name}: {kind}", used + kind_cost
        parts.append(name)
    return ", ".join(parts)


def _kind_cost(kind: str) -> int:
    return 0 if kind in ("string", "any") else count(f": {kind}")


def _hints(annotations: Mapping[str, Any]) -> Iterator[str]:
    if annotations.get("readOnlyHint") is True:
        yield "read-only"
    elif annotations.get("destructiveHint") is not None:
        yield "destructive" if annotations["destructiveHint"] else "not destructive"
    if annotations.get("idempotentHint") is True and annotations.get("readOnlyHint") is not True:
        yield "idempotent"
    if annotations.get("openWorldHint") is True:
        yield "open-world"


def _arguments(tree: Outline) -> list[str]:
    root, seen, lines = tree.root, dict[str, str](), list[str]()
    if root.type not in ("object", "any", "union"):
        lines += _lines("arguments", root, 1, "", seen)
    named = [(_label(param), param) for param in tree.params]
    named += [(f"(either {number})", variant) for number, variant in enumerate(root.variants, 1)]
    for label, param in named:
        lines += _lines(label, param, 1, "", seen)
    if root.constraints and root.children:
        lines.append(f" ({', '.join(root.constraints)})")
    for name, param in tree.types.items():
        lines += _lines(f"type {name}", param, 0, name, seen)
    return lines


def _label(param: Param) -> str:
    return param.name if param.pattern else _name(param.name) + ("" if param.required else "?")


def _lines(label: str, param: Param, depth: int, above: str, seen: dict[str, str]) -> list[str]:
    """One parameter: its own line, then lines for each thing inside it that does not fit there."""
    blocks, notes = list[Param](), list[str]()
    text = _type(param, blocks, notes, role="")
    for number in range(1, len(blocks) + 1):
        text = text.replace("\0", f"object{number}" if len(blocks) > 1 else "object", 1)
    if len(blocks) == 1 and blocks[0] is not param and blocks[0].description:
        notes.append(_prose(blocks[0].description))
    parts = [_prose(param.description), *(f"({note})" for note in notes)]
    if param.examples:
        parts.append(f"e.g. {', '.join(map(literal, param.examples))}")
    indent = " " * depth
    description = " ".join(filter(None, parts)).replace("\n", f"\n{indent}  ")
    lines = [f"{indent}{label}: {text}{_default(param)}" + (f" — {description}" if description else "")]
    path = f"{above}.{param.name}" if above and param.name else above or param.name
    for number, block in enumerate(blocks, 1):
        inner = depth + 1
        if len(blocks) > 1:
            about = _prose(block.description).replace("\n", f"\n{indent}   ") if block is not param else ""
            lines.append(f"{indent} object{number}:{about and ' '}{about}")
            inner += 1
        lines += _fields(block, inner, path, seen)
    return lines


def _fields(block: Param, depth: int, path: str, seen: dict[str, str]) -> list[str]:
    """An object's fields, or where the very same fields were shown before."""
    key = literal([block.source.get(part) for part in _FIELD_KEYS])
    if len(key) > _REPEAT_CHARS:
        if key in seen:
            return [f"{' ' * depth}(fields of {_flat(shown(seen[key]))})"]
        seen[key] = path
    return [line for child in block.children for line in _lines(_label(child), child, depth, path, seen)]


def _type(param: Param, blocks: list[Param], notes: list[str], *, role: str) -> str:
    """A type as an expression; an object too big for one is "\\0" in it and goes to `blocks`.

    `role` is what an unnamed part is to its whole: its description becomes a note, because it has no line of its own.
    """
    if param.ref:
        text = param.ref
    elif param.enum:
        text = "|".join(map(literal, param.enum))
    elif param.type == "union":
        kinds = [_type(variant, blocks, notes, role="or") for variant in param.variants]
        text = "|".join({(kind, "\0" in kind and index): kind for index, kind in enumerate(kinds)}.values())
    elif param.type == "array":
        inner = _type(param.items, blocks, notes, role="each") if param.items else "any"
        text = f"({inner})[]" if "|" in inner else f"{inner}[]"
        if param.prefix:
            first = ", ".join(_type(one, blocks, notes, role="item") for one in param.prefix)
            text = f"[{first}, ...{text}]" if param.items else f"[{first}]"
    elif param.type == "object" and param.children:
        text = _object(param, blocks, notes)
    else:
        # Some servers list the values of a string as if it were an array.
        text = f"{param.type}(items {_type(param.items, blocks, notes, role='each')})" if param.items else param.type
    if param.type == "union" and param.children:
        text = f"{_object(param, blocks, notes)} & ({text})"
    if param.constraints:
        text = f"({text})({', '.join(param.constraints)})" if "|" in text else f"{text}({', '.join(param.constraints)})"
    if param.nullable and (role or param.default is not None):
        text += "|null"
    if role:
        text += _default(param)
        if param.description and not (blocks and blocks[-1] is param):
            what = text if role == "or" and len(text) < 40 and "\0" not in text else role
            notes.append(f"{what}: {_prose(param.description)}")
    return text


def _object(param: Param, blocks: list[Param], notes: list[str]) -> str:
    children = param.children
    if len(children) == 1 and children[0].pattern and not children[0].description:
        return f"{{{children[0].name}: {_type(children[0], blocks, notes, role='value')}}}"
    if _is_small(param, 3):
        inner = ", ".join(f"{_label(one)}: {_type(one, [], [], role='')}{_default(one)}" for one in children)
        if len(inner) <= _INLINE_CHARS and "\0" not in inner:
            return f"{{{inner}}}"
    blocks.append(param)
    return "\0"


def _is_small(param: Param, levels: int) -> bool:
    if levels == 0 or len(param.children) > 6:
        return False
    inner = (*param.children, *param.variants, *param.prefix, *((param.items,) if param.items else ()))
    return all(not (one.description or one.examples) and _is_small(one, levels - 1) for one in inner)


def _default(param: Param) -> str:
    """` = 5`; ` = null` also says that the type takes null."""
    if param.default is ABSENT:
        return ""
    takes_null = param.nullable or param.type in ("null", "any") or None in param.enum
    return " (default null)" if param.default is None and not takes_null else f" = {literal(param.default)}"


def _returns(tree: Outline) -> str:
    """An output schema in one line, as deep as fits: its details are in the full form."""
    text = _bare_type(tree.root, tree, 1)
    if len(text) > _RETURNS_CHARS:
        return text[:_RETURNS_CHARS].rsplit(",", 1)[0] + ", …}"
    for levels in (2, 3, 4):
        deeper = _bare_type(tree.root, tree, levels)
        if len(deeper) > _RETURNS_CHARS:
            break
        text = deeper
    return text


def _bare_type(param: Param, tree: Outline, levels: int) -> str:
    if param.ref in tree.types and levels > 0:
        param, levels = tree.types[param.ref], levels - 1
    if param.enum:
        text = "|".join(map(literal, param.enum))
    elif param.variants:
        text = "|".join(dict.fromkeys(_bare_type(one, tree, levels) for one in param.variants))
    elif param.type == "array" and param.items:
        inner = _bare_type(param.items, tree, levels)
        text = f"({inner})[]" if "|" in inner else f"{inner}[]"
    elif param.children:
        inner = ", ".join(f"{_label(one)}: {_bare_type(one, tree, levels - 1)}" for one in param.children if levels > 0)
        text = f"{{{inner or '…'}}}"
    else:
        text = param.ref or param.type
    return f"{text}|null" if param.nullable else text


def _name(name: str) -> str:
    return name if _BARE_NAME.fullmatch(name) else literal(name)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _prose(text: str) -> str:
    """Text with its lines but not their padding: no common indent, blank lines or wrapping inside a sentence."""
    text = shown(text)
    if "\n" not in text:
        return _flat(text)
    parts, fenced, before = list[str](), False, ""
    for line in map(str.rstrip, inspect.cleandoc(text).split("\n")):
        fenced ^= line.lstrip().startswith("```")
        if line:
            wrapped = line[0].islower() and len(before) >= 60 and before[0] != " " and not fenced
            parts += (" " if wrapped else "\n", line)
            before = line
    return "".join(parts[1:])
