"""The typed form of a tool's parameters and results: a line each, nested ones indented. Pure.

Names, types, enums, defaults and limits are always complete, because a caller sends them as they
are. Descriptions are condensed.
"""

import re
from collections.abc import Mapping

from portico.catalog.schema_outline import ABSENT, SchemaOutline, SchemaParameter
from portico.catalog.tool import sanitize_text, to_literal
from portico.rendering import condensed_text
from portico.rendering.prose import collapse_whitespace, quote_if_needed

_MAX_INLINE_CHARS = 90
_MAX_RETURNS_CHARS = 200
_MIN_REPEAT_CHARS = 200
"""Fields whose JSON is longer than this are written once and referred to afterwards."""
_FIELD_KEYS = (
    "properties", "required", "patternProperties", "additionalProperties", "propertyNames",
)  # fmt: skip
_MAX_EXAMPLE_CHARS = 40
_UNINFORMATIVE_TYPE = re.compile(
    r"(?:\{result\??: )?(?:object|any|string|any\[\]|object\[\])(?:\|null)?\}?|\{\[key\]: any\}"
)


def render_label(param: SchemaParameter) -> str:
    """Return a parameter's name, with a question mark if it is optional."""
    if param.is_pattern:
        return param.name
    return quote_if_needed(param.name) + ("" if param.required else "?")


class TypedFormWriter:
    """Writer of one tool's parameters: tracks which fields were shown and how much was left out."""

    def __init__(self, tree: SchemaOutline, notes: Mapping[str, str]) -> None:
        """Prepare the writer; `notes` describe top-level parameters that lack a description."""
        self.omitted_tokens = 0
        self._tree = tree
        self._notes = notes
        self._path_by_fields: dict[str, str] = {}

    def render_lines(self) -> list[str]:
        """Return a line for each parameter, required ones first, and the types that they name."""
        root = self._tree.root
        lines = list[str]()
        if root.type not in ("object", "any", "union"):
            lines += self._render_param("arguments", root, 1, "")
        for param in self._tree.parameters:
            lines += self._render_param(render_label(param), param, 1, "")
        for number, variant in enumerate(root.variants, 1):
            lines += self._render_param(f"(either {number})", variant, 1, "")
        if root.constraints and root.children:
            lines.append(f" ({', '.join(root.constraints)})")
        for name, param in self._tree.types.items():
            lines += self._render_param(f"type {name}", param, 0, name)
        return lines

    def _render_param(
        self, name: str, param: SchemaParameter, depth: int, parent_path: str
    ) -> list[str]:
        """Return a parameter's own line, then lines for inner parts that do not fit on it."""
        blocks = list[SchemaParameter]()
        notes = list[str]()
        text = self._render_type(param, blocks, notes, role="")
        for number in range(1, len(blocks) + 1):
            text = text.replace("\0", f"object{number}" if len(blocks) > 1 else "object", 1)
        if (
            len(blocks) == 1
            and blocks[0] is not param
            and (block_note := self._render_note(blocks[0]))
        ):
            notes.append(block_note)
        elsewhere = self._notes.get(param.name, "") if depth == 1 else ""
        note_text = self._render_note(param, elsewhere)
        parts = [note_text, *(f"({note})" for note in notes), _render_examples(param, note_text)]
        description = " ".join(filter(None, parts))
        indent = " " * depth
        lines = [
            f"{indent}{name}: {text}{_render_default(param)}"
            + (f" — {description}" if description else "")
        ]
        path = ".".join(filter(None, (parent_path, param.name)))
        for number, block in enumerate(blocks, 1):
            inner = depth + 1
            if len(blocks) > 1:
                block_note = self._render_note(block) if block is not param else ""
                lines.append(f"{indent} object{number}:{block_note and ' '}{block_note}")
                inner += 1
            lines += self._render_fields(block, inner, path)
        return lines

    def _render_fields(self, block: SchemaParameter, depth: int, path: str) -> list[str]:
        """Return an object's fields, or a reference to where the same fields were shown."""
        key = to_literal([block.source.get(part) for part in _FIELD_KEYS])
        if len(key) > _MIN_REPEAT_CHARS:
            if key in self._path_by_fields:
                shown_at = collapse_whitespace(sanitize_text(self._path_by_fields[key]))
                return [f"{' ' * depth}(fields of {shown_at})"]
            self._path_by_fields[key] = path
        return [
            line
            for child in block.children
            for line in self._render_param(render_label(child), child, depth, path)
        ]

    def _render_type(
        self, param: SchemaParameter, blocks: list[SchemaParameter], notes: list[str], *, role: str
    ) -> str:
        """Render a type expression; an object too big for it is "\\0" there and goes to `blocks`.

        `role` is the relation of an unnamed part to its parent: its description becomes a note,
        because it has no line of its own.
        """
        if param.ref:
            text = param.ref
        elif param.enum:
            text = "|".join(map(to_literal, param.enum))
        elif param.type == "union":
            kinds = [
                self._render_type(variant, blocks, notes, role="or") for variant in param.variants
            ]
            text = "|".join(
                {(kind, "\0" in kind and index): kind for index, kind in enumerate(kinds)}.values()
            )
        elif param.type == "array":
            inner = "any"
            if param.items:
                inner = self._render_type(param.items, blocks, notes, role="each")
            text = _render_array(inner)
            if param.prefix:
                parts = [
                    self._render_type(item, blocks, notes, role="item") for item in param.prefix
                ]
                if param.items:
                    parts.append(f"...{text}")
                text = f"[{', '.join(parts)}]"
        elif param.type == "object" and param.children:
            text = self._render_object(param, blocks, notes)
        else:
            text = param.type
            # Some servers declare the values of a string with `items`, as if it were an array.
            if param.items:
                text += f"(items {self._render_type(param.items, blocks, notes, role='each')})"
        if param.type == "union" and param.children:
            text = f"{self._render_object(param, blocks, notes)} & ({text})"
        if param.constraints:
            limits = ", ".join(param.constraints)
            text = f"({text})({limits})" if "|" in text else f"{text}({limits})"
        if param.nullable and (role or param.default is not None):
            text += "|null"
        if role:
            text += _render_default(param)
            is_block = bool(blocks) and blocks[-1] is param
            if not is_block and (note := self._render_note(param)):
                is_short = role == "or" and len(text) < 40 and "\0" not in text
                notes.append(f"{text if is_short else role}: {note}")
        return text

    def _render_object(
        self, param: SchemaParameter, blocks: list[SchemaParameter], notes: list[str]
    ) -> str:
        children = param.children
        if len(children) == 1 and children[0].is_pattern and not children[0].description:
            value = self._render_type(children[0], blocks, notes, role="value")
            return f"{{{children[0].name}: {value}}}"
        if _is_small(param, 3):
            fields: list[str] = []
            for child in children:
                text = self._render_type(child, [], [], role="")
                fields.append(f"{render_label(child)}: {text}{_render_default(child)}")
            inner = ", ".join(fields)
            if len(inner) <= _MAX_INLINE_CHARS and "\0" not in inner:
                return f"{{{inner}}}"
        blocks.append(param)
        return "\0"

    def _render_note(self, param: SchemaParameter, fallback: str = "") -> str:
        text = param.description or fallback
        if not text:
            return ""
        condensed = condensed_text.condense_note(param, text)
        self.omitted_tokens += condensed.omitted_tokens
        return condensed.text


def _render_array(inner: str) -> str:
    if "|" in inner:
        return f"({inner})[]"
    return f"{inner}[]"


def _is_small(param: SchemaParameter, levels: int) -> bool:
    if levels == 0 or len(param.children) > 6:
        return False
    inner = (
        *param.children,
        *param.variants,
        *param.prefix,
        *((param.items,) if param.items else ()),
    )
    return all(
        not (_is_described(part) or part.examples) and _is_small(part, levels - 1) for part in inner
    )


def _is_described(param: SchemaParameter) -> bool:
    return bool(param.description) and not condensed_text.is_redundant(param.description, param)


def _render_default(param: SchemaParameter) -> str:
    """Render ` = 5`; ` = null` also says that the type accepts null."""
    if param.default is ABSENT:
        return ""
    takes_null = param.nullable or param.type in ("null", "any") or None in param.enum
    if param.default is None and not takes_null:
        return " (default null)"
    return f" = {to_literal(param.default)}"


def _render_examples(param: SchemaParameter, note: str) -> str:
    """Render one or two example values, if neither the note nor the type has any."""
    if param.enum or "e.g." in note or "xample" in note:
        return ""
    shown = list[str]()
    for value in param.examples[:2]:
        text = to_literal(value)
        if (
            text == to_literal(param.default)
            or sum(map(len, shown)) + len(text) > _MAX_EXAMPLE_CHARS
        ):
            break
        shown.append(text)
    if shown:
        return f"e.g. {', '.join(shown)}"
    return ""


def render_returns(tree: SchemaOutline) -> str:
    """Render an output schema in one line, as deep as fits; empty if it says nothing."""
    text = _render_bare_type(tree.root, tree, 1)
    if len(text) > _MAX_RETURNS_CHARS:
        return text[:_MAX_RETURNS_CHARS].rsplit(",", 1)[0] + ", …}"
    for levels in (2, 3, 4):
        deeper = _render_bare_type(tree.root, tree, levels)
        if len(deeper) > _MAX_RETURNS_CHARS:
            break
        text = deeper
    if _UNINFORMATIVE_TYPE.fullmatch(text):
        return ""
    return text


def _render_bare_type(param: SchemaParameter, tree: SchemaOutline, levels: int) -> str:
    if param.ref in tree.types and levels > 0:
        param = tree.types[param.ref]
        levels = levels - 1
    if param.enum:
        text = "|".join(map(to_literal, param.enum))
    elif param.variants:
        text = "|".join(
            dict.fromkeys(_render_bare_type(part, tree, levels) for part in param.variants)
        )
    elif param.type == "array" and param.items:
        text = _render_array(_render_bare_type(param.items, tree, levels))
    elif param.children:
        inner = ", ".join(
            f"{render_label(part)}: {_render_bare_type(part, tree, levels - 1)}"
            for part in param.children
            if levels > 0
        )
        text = f"{{{inner or '…'}}}"
    else:
        text = param.ref or param.type
    if param.nullable:
        return f"{text}|null"
    return text
