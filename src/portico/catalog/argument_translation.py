"""Translates the arguments of callers to those of a server, where the configuration overrides a
tool's parameters. Pure.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_UNKNOWN_NAMES = 1_000
"""Names beside those of parameters that are compared with what callers must not send."""
_MAX_COMPARED_CHARS = 256
_SEPARATORS = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class ArgumentTranslation:
    """How the arguments of one tool are translated."""

    own_names: Mapping[str, str] = field(default_factory=dict)
    """The server's name of each renamed parameter, by the name that callers use."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """By the name that callers use."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """By the server's name; texts may hold references to secrets."""
    hidden_names: Mapping[str, str] = field(default_factory=dict)
    """Names that callers must not send, folded: the right name, or "" for a fixed argument."""
    shown_names: frozenset[str] = frozenset()
    """Names of all parameters as callers see them."""

    def fill_defaults(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments with the defaults of those that are missing."""
        missing = {name: self.defaults[name] for name in self.defaults if name not in arguments}
        return {**arguments, **missing}

    def find_refused(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return why names that a caller sends are refused; empty: none is."""
        if not self.hidden_names:
            return ()
        unknown = [name for name in names if name not in self.shown_names]
        if len(unknown) > MAX_UNKNOWN_NAMES:
            return (f"{len(unknown)} names are no parameters",)
        problems: list[str] = []
        for name in unknown:
            right = self.hidden_names.get(fold_name(name))
            if right == "":
                problems.append(f"{name} is set by this gateway and cannot be given")
            elif right is not None:
                problems.append(f"{name} is called {right} here")
        return tuple(problems)

    def translate(self, arguments: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the server has them; `fixed` are the values with secrets."""
        own = {self.own_names.get(name, name): value for name, value in arguments.items()}
        return {**own, **fixed}


def fold_name(name: str) -> str:
    """Return a name in the form in which a careless server may compare it."""
    return _SEPARATORS.sub("", name[:_MAX_COMPARED_CHARS]).casefold() or name
