"""Scripts as models write them, one file a language, each with what it has to come to.

### a title
#= answers JSON        the value that it returns
#= prints JSON         a list of texts that it prints; it returns nothing
#= fails WORDS; WORDS  it cannot run, and the error has these words of advice
#= writes N            so many calls of tools that change something (default 0)

Every third script was held out: it was not run while the engines were changed for the others. The
last 23 of Python, 18 of JavaScript, 10 of TypeScript and 14 of Lua were written later by somebody
who had not seen the engines; all ran the first time.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portico.scripts.sandbox.script import Language

LANGUAGES: tuple[Language, ...] = ("python", "javascript", "typescript", "lua")
_HELD_OUT_EVERY = 3


@dataclass
class ModelScript:
    """One script with its expected outcome."""

    language: Language
    title: str
    is_held_out: bool
    lines: list[str] = field(default_factory=list[str])
    expected: dict[str, str] = field(default_factory=dict[str, str])

    def __str__(self) -> str:
        return f"{self.language}: {self.title}"

    @property
    def code(self) -> str:
        return "\n".join(self.lines).strip() + "\n"

    @property
    def should_run(self) -> bool:
        return "fails" not in self.expected

    @property
    def writes(self) -> int:
        return int(self.expected.get("writes", 0))

    def find_fault(self, text: str, failed: bool, writes: int) -> str | None:
        """Compare what `run_code` answered with what was expected; return the difference."""
        if writes != self.writes:
            return f"{writes} writing calls instead of {self.writes}: {text}"
        if failed == self.should_run:
            return text
        if "answers" in self.expected:
            return self._compare_value(text)
        expected: list[str] = self.expected.get("fails", "").split("; ")
        if "prints" in self.expected:
            expected = json.loads(self.expected["prints"])
        if all(words in text for words in expected):
            return None
        return f"{expected} not all in: {text}"

    def _compare_value(self, text: str) -> str | None:
        expected: Any = json.loads(self.expected["answers"])
        answer = text.split("\ncalled: ")[0]
        if answer == expected:
            return None
        try:
            matches = json.loads(answer) == expected
        except ValueError:
            matches = False
        return None if matches else f"{expected} expected: {text}"


def read_scripts() -> list[ModelScript]:
    """Return all scripts, in the order of their files."""
    scripts: list[ModelScript] = []
    for language in LANGUAGES:
        text = Path(__file__).with_name(f"{language}.txt").read_text()
        for number, section in enumerate(text.split("### ")[1:], start=1):
            title, *lines = section.splitlines()
            script = ModelScript(language, title, number % _HELD_OUT_EVERY == 0)
            for line in lines:
                if line.startswith("#= "):
                    kind, _, value = line.removeprefix("#= ").partition(" ")
                    script.expected[kind] = value
                else:
                    script.lines.append(line)
            scripts.append(script)
    return scripts
