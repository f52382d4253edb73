"""The typed form of a tool's parameters and of what it gives back: a line for each, nested ones indented. Pure.

Names, types, enums, defaults and limits are always whole, because a caller sends them as they stand. Words are few.
"""

import re
from collections.abc import Mapping

from portico.catalog.schema import ABSENT, Outline, Param
from portico.catalog.visible import literal, shown
from portico.disclosure import shorten
from portico.disclosure.prose import bare, flat

_INLINE_CHARS = 90
_RETURNS_CHARS = 200
_REPEAT_CHARS = 200
"""Fields that were shown before are pointed to when their JSON is longer than this."""
_FIELD_KEYS = ("properties", "required", "patternProperties", "additionalProperties", "propertyNames")
_EXAMPLE_CHARS = 40
_SAYS_NOTHING = re.compile(r"(?:\{result\??: )?(?:object|any|string|any\[\]|object\[\])(?:\|null)?\}?|\{\[key\]: any\}")


def label(param: Param) -> str:
    """A parameter's name, with a question mark where it may be left out."""
    return param.name if param.pattern else bare(param.name) + ("" if param.required else "?")


class Typed:
    """One tool's parameters being written: which fields were shown already, and how much was left out."""

    def __init__(self, tree: Outline, notes: Mapping[str, str]) -> None:
        """`notes` are words about top-level parameters from elsewhere, for those that have none of their own."""
        self.left_out = 0
        self._tree, self._notes = tree, notes
        self._seen: dict[str, str] = {}

    def lines(self) -> list[str]:
        """A line for each parameter, the required ones first, and the types that they name."""
        root, lines = self._tree.root, list[str]()
        if root.type not in ("object", "any", "union"):
            lines += self._lines("arguments", root, 1, "")
        for param in self._tree.params:
            lines += self._lines(label(param), param, 1, "")
        for number, variant in enumerate(root.variants, 1):
            lines += self._lines(f"(either {number})", variant, 1, "")
        if root.constraints and root.children:
            lines.append(f" ({', '.join(root.constraints)})")
        for name, param in self._tree.types.items():
            lines += self._lines(f"type {name}", param, 0, name)
        return lines

    def _lines(self, name: str, param: Param, depth: int, above: str) -> list[str]:
        """One parameter: its own line, then lines for each thing inside it that does not fit there."""
        blocks, notes = list[Param](), list[str]()
        text = self._type(param, blocks, notes, role="")
        for number in range(1, len(blocks) + 1):
            text = text.replace("\0", f"object{number}" if len(blocks) > 1 else "object", 1)
        if len(blocks) == 1 and blocks[0] is not param and (about := self._note(blocks[0])):
            notes.append(about)
        elsewhere = self._notes.get(param.name, "") if depth == 1 else ""
        words = self._note(param, elsewhere)
        parts = [words, *(f"({note})" for note in notes), _examples(param, words)]
        description = " ".join(filter(None, parts))
        indent = " " * depth
        lines = [f"{indent}{name}: {text}{_default(param)}" + (f" — {description}" if description else "")]
        path = f"{above}.{param.name}" if above and param.name else above or param.name
        for number, block in enumerate(blocks, 1):
            inner = depth + 1
            if len(blocks) > 1:
                about = self._note(block) if block is not param else ""
                lines.append(f"{indent} object{number}:{about and ' '}{about}")
                inner += 1
            lines += self._fields(block, inner, path)
        return lines

    def _fields(self, block: Param, depth: int, path: str) -> list[str]:
        """An object's fields, or where the very same fields were shown before."""
        key = literal([block.source.get(part) for part in _FIELD_KEYS])
        if len(key) > _REPEAT_CHARS:
            if key in self._seen:
                return [f"{' ' * depth}(fields of {flat(shown(self._seen[key]))})"]
            self._seen[key] = path
        return [line for child in block.children for line in self._lines(label(child), child, depth, path)]

    def _type(self, param: Param, blocks: list[Param], notes: list[str], *, role: str) -> str:
        """A type as an expression; an object too big for one is "\\0" in it and goes to `blocks`.

        `role` is what an unnamed part is to its whole: its description becomes a note, because it has no line of its
        own.
        """
        if param.ref:
            text = param.ref
        elif param.enum:
            text = "|".join(map(literal, param.enum))
        elif param.type == "union":
            kinds = [self._type(variant, blocks, notes, role="or") for variant in param.variants]
            text = "|".join({(kind, "\0" in kind and index): kind for index, kind in enumerate(kinds)}.values())
        elif param.type == "array":
            inner = self._type(param.items, blocks, notes, role="each") if param.items else "any"
            text = f"({inner})[]" if "|" in inner else f"{inner}[]"
            if param.prefix:
                first = ", ".join(self._type(one, blocks, notes, role="item") for one in param.prefix)
                text = f"[{first}, ...{text}]" if param.items else f"[{first}]"
        elif param.type == "object" and param.children:
            text = self._object(param, blocks, notes)
        else:
            # Some servers list the values of a string as if it were an array.
            inner = f"(items {self._type(param.items, blocks, notes, role='each')})" if param.items else ""
            text = f"{param.type}{inner}"
        if param.type == "union" and param.children:
            text = f"{self._object(param, blocks, notes)} & ({text})"
        if param.constraints:
            limits = ", ".join(param.constraints)
            text = f"({text})({limits})" if "|" in text else f"{text}({limits})"
        if param.nullable and (role or param.default is not None):
            text += "|null"
        if role:
            text += _default(param)
            about = "" if blocks and blocks[-1] is param else self._note(param)
            if about:
                what = text if role == "or" and len(text) < 40 and "\0" not in text else role
                notes.append(f"{what}: {about}")
        return text

    def _object(self, param: Param, blocks: list[Param], notes: list[str]) -> str:
        children = param.children
        if len(children) == 1 and children[0].pattern and not children[0].description:
            return f"{{{children[0].name}: {self._type(children[0], blocks, notes, role='value')}}}"
        if _is_small(param, 3):
            inner = ", ".join(f"{label(one)}: {self._type(one, [], [], role='')}{_default(one)}" for one in children)
            if len(inner) <= _INLINE_CHARS and "\0" not in inner:
                return f"{{{inner}}}"
        blocks.append(param)
        return "\0"

    def _note(self, param: Param, elsewhere: str = "") -> str:
        text = param.description or elsewhere
        if not text:
            return ""
        words = shorten.noted(param, text)
        self.left_out += words.left_out
        return words.text


def _is_small(param: Param, levels: int) -> bool:
    if levels == 0 or len(param.children) > 6:
        return False
    inner = (*param.children, *param.variants, *param.prefix, *((param.items,) if param.items else ()))
    return all(not (_is_described(one) or one.examples) and _is_small(one, levels - 1) for one in inner)


def _is_described(param: Param) -> bool:
    return bool(param.description) and not shorten.says_nothing(param.description, param)


def _default(param: Param) -> str:
    """` = 5`; ` = null` also says that the type takes null."""
    if param.default is ABSENT:
        return ""
    takes_null = param.nullable or param.type in ("null", "any") or None in param.enum
    return " (default null)" if param.default is None and not takes_null else f" = {literal(param.default)}"


def _examples(param: Param, words: str) -> str:
    """One or two values to go by, where neither the words nor the type have any."""
    if param.enum or "e.g." in words or "xample" in words:
        return ""
    kept = list[str]()
    for value in param.examples[:2]:
        text = literal(value)
        if text == literal(param.default) or sum(map(len, kept)) + len(text) > _EXAMPLE_CHARS:
            break
        kept.append(text)
    return f"e.g. {', '.join(kept)}" if kept else ""


def returns(tree: Outline) -> str:
    """An output schema in one line, as deep as fits; empty where it says nothing. Its details are in the full form."""
    text = _bare_type(tree.root, tree, 1)
    if len(text) > _RETURNS_CHARS:
        return text[:_RETURNS_CHARS].rsplit(",", 1)[0] + ", …}"
    for levels in (2, 3, 4):
        deeper = _bare_type(tree.root, tree, levels)
        if len(deeper) > _RETURNS_CHARS:
            break
        text = deeper
    return "" if _SAYS_NOTHING.fullmatch(text) else text


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
        inner = ", ".join(f"{label(one)}: {_bare_type(one, tree, levels - 1)}" for one in param.children if levels > 0)
        text = f"{{{inner or '…'}}}"
    else:
        text = param.ref or param.type
    return f"{text}|null" if param.nullable else text
