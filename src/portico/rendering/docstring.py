"""Parameters that a tool's description explains in a list of its own, as docstrings do. Pure.

Many servers put the only words about a parameter there. They belong beside the parameter's type,
where a caller looks for them, and once.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

# What repeats is bounded: a stranger's line of nothing but marks must not take seconds.
_HEADING = re.compile(
    r"[ \t]{0,40}[#*_< ]{0,8}(?:args|arguments|(?:input )?parameters|params|inputs|hints for arguments)"
    r"[#*_:> ]{0,8}(?:\([^()]{0,80}\))?:?[ \t]{0,8}$",
    re.IGNORECASE,
)
_NEXT_HEADING = re.compile(
    r"[ \t]{0,40}(?:#|</?[A-Za-z_]{1,40}>|\*\*[^*]{1,80}\*\*|\*{0,2}[A-Z][A-Za-z ]{1,30}\*{0,2}:\*{0,2}[ \t]{0,8}$)"
)
_FIELD = re.compile(
    r"[ \t]{0,40}(?P<mark>[-*•+][ \t]{1,8}|\d{1,3}[.)][ \t]{1,8}|[:@]param[ \t]{1,8})?"
    r"[*_`\"']{0,4}(?P<name>[A-Za-z_$@][\w$@.-]{0,100}?)[*_`\"']{0,4}"
    r"[ \t]{0,8}(?:[(\[][^)\]\n]{0,80}[)\]])?[*_`]{0,4}[ \t]{0,8}(?::|[–—]|-[ \t])[*_]{0,4}[ \t]{0,8}(?P<text>.*)$"
)


@dataclass(frozen=True)
class ParsedDocstring:
    """A description without its list of parameters, and what that list said of each."""

    description: str
    notes: Mapping[str, str]


def parse_docstring(text: str, parameter_names: Collection[str]) -> ParsedDocstring:
    """Split off what a description lists of parameters; the rest of it comes back as it is."""
    if not parameter_names or "\n" not in text:
        return ParsedDocstring(text, {})
    kept = list[str]()
    notes = dict[str, list[str]]()
    listed = False
    current = ""
    depth_of_current = 0
    for line in text.split("\n"):
        depth = len(line) - len(line.lstrip())
        found = _FIELD.match(line)
        if (
            found
            and found["name"] in parameter_names
            and (listed or found["mark"])
            and not (current and depth > depth_of_current)
        ):
            current = found["name"]
            depth_of_current = depth
            notes.setdefault(current, []).append(found["text"])
            if kept and _HEADING.match(kept[-1]):
                kept.pop()
        elif (
            current and line.strip() and depth > depth_of_current and not _NEXT_HEADING.match(line)
        ):
            notes[current].append(line.strip())
        else:
            listed = bool(_HEADING.match(line)) or (listed and not line.strip())
            if listed and not line.strip():
                current = current
            else:
                current = ""
            kept.append(line)
    return ParsedDocstring(
        "\n".join(kept), {name: " ".join(filter(None, parts)) for name, parts in notes.items()}
    )
