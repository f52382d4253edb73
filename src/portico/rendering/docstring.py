"""Parameter notes in a tool's description, parsed like a docstring's "Args" section. Pure.

Many servers document parameters only there. The notes are moved beside the parameter's type, where
a caller looks for them.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

# Repetitions are bounded: an untrusted line of nothing but marks must not take seconds to match.
_HEADING = re.compile(
    r"[ \t]{0,40}[#*_< ]{0,8}(?:args|arguments|(?:input )?parameters|params|inputs|"
    r"hints for arguments)"
    r"[#*_:> ]{0,8}(?:\([^()]{0,80}\))?:?[ \t]{0,8}$",
    re.IGNORECASE,
)
_NEXT_HEADING = re.compile(
    r"[ \t]{0,40}(?:#|</?[A-Za-z_]{1,40}>|\*\*[^*]{1,80}\*\*|"
    r"\*{0,2}[A-Z][A-Za-z ]{1,30}\*{0,2}:\*{0,2}[ \t]{0,8}$)"
)
_FIELD = re.compile(
    r"[ \t]{0,40}(?P<mark>[-*•+][ \t]{1,8}|\d{1,3}[.)][ \t]{1,8}|[:@]param[ \t]{1,8})?"
    r"[*_`\"']{0,4}(?P<name>[A-Za-z_$@][\w$@.-]{0,100}?)[*_`\"']{0,4}"
    r"[ \t]{0,8}(?:[(\[][^)\]\n]{0,80}[)\]])?[*_`]{0,4}[ \t]{0,8}(?::|[–—]|"
    r"-[ \t])[*_]{0,4}[ \t]{0,8}(?P<text>.*)$"
)


@dataclass(frozen=True)
class ParsedDocstring:
    """A description without its parameter list, and the note on each parameter."""

    description: str
    notes: Mapping[str, str]


def parse_docstring(text: str, parameter_names: Collection[str]) -> ParsedDocstring:
    """Split the parameter notes off a description; the rest is returned unchanged."""
    if not parameter_names or "\n" not in text:
        return ParsedDocstring(text, {})
    description_lines = list[str]()
    notes = dict[str, list[str]]()
    in_list = False
    current = ""
    current_depth = 0
    for line in text.split("\n"):
        depth = len(line) - len(line.lstrip())
        found = _FIELD.match(line)
        if (
            found
            and found["name"] in parameter_names
            and (in_list or found["mark"])
            and not (current and depth > current_depth)
        ):
            current = found["name"]
            current_depth = depth
            notes.setdefault(current, []).append(found["text"])
            if description_lines and _HEADING.match(description_lines[-1]):
                description_lines.pop()
        elif current and line.strip() and depth > current_depth and not _NEXT_HEADING.match(line):
            notes[current].append(line.strip())
        else:
            in_list = bool(_HEADING.match(line)) or (in_list and not line.strip())
            if not in_list or line.strip():
                current = ""
            description_lines.append(line)
    return ParsedDocstring(
        "\n".join(description_lines),
        {name: " ".join(filter(None, parts)) for name, parts in notes.items()},
    )
