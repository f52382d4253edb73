"""References to secrets in a configuration: `${keyring:service/name}`, `${file:path}` and
`${cmd:program args}`.

In a loaded configuration a reference stands in its text between NUL characters, which no text from
a file or a variable can contain: what such a text says is never taken for a reference. The secret
is read when it is needed (`upstream/secret_reader.py`). Pure, but for the values known in this
process.
"""

import re
import shlex
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import quote, unquote

from portico.config import BackendConfig

ReferenceKind = Literal["keyring", "file", "cmd"]
KINDS: tuple[ReferenceKind, ...] = ("keyring", "file", "cmd")
REFERENCING_KEYS = frozenset({"env", "headers", "auth", "query", "url", "base_url", "args"})
"""Keys of a server that may contain references, beside fixed arguments."""
_LATER_KEYS = frozenset({"auth"})
"""Keys whose references are read when somebody signs in, not when the server is started."""
MAX_KNOWN_VALUES = 1_000
_FIXED_DEPTH = 6
"""Keys of a fixed argument: `tools`, `override`, pattern, `parameters`, name, `fixed`."""
_REFERENCE = re.compile("\0(keyring|file|cmd):([^\0]*)\0")


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Where a secret is kept."""

    kind: ReferenceKind
    target: str
    """`service/name`, an absolute path, or a command line."""

    def __str__(self) -> str:
        """Return it as it may be shown: a command without its arguments."""
        if self.kind == "cmd":
            return f"${{cmd:{self.words[0]} …}}" if self.words[1:] else f"${{cmd:{self.target}}}"
        return f"${{{self.kind}:{self.target}}}"

    @property
    def words(self) -> list[str]:
        """A command's program and arguments."""
        return shlex.split(self.target)


def parse_reference(kind: ReferenceKind, target: str, base: Path) -> SecretReference:
    """Parse what stands after the kind; a relative path is under `base`. Raises ValueError."""
    target = target.strip()
    if kind == "keyring":
        service, slash, name = target.rpartition("/")
        if not (service and slash and name):
            raise ValueError("write ${keyring:service/name}")
    elif kind == "file":
        if not target:
            raise ValueError("write ${file:path}")
        target = str(base / Path(target).expanduser())
    else:
        try:
            words = shlex.split(target)
        except ValueError as error:
            raise ValueError(f"${{cmd:…}} cannot be split into words: {error}") from None
        if not words:
            raise ValueError("write ${cmd:program arguments}")
    return SecretReference(kind, target)


def is_fixed_argument(keys: Sequence[Any]) -> bool:
    """Return whether a path within a server leads to a fixed argument of a tool, or into it."""
    if len(keys) < _FIXED_DEPTH:
        return False
    return (*keys[:2], keys[3], keys[5]) == ("tools", "override", "parameters", "fixed")


def encode_reference(reference: SecretReference) -> str:
    """Return the form of a reference in a loaded configuration."""
    return f"\0{reference.kind}:{quote(reference.target, safe='')}\0"


def find_references(value: Any) -> set[SecretReference]:
    """Return the references in all texts of a value."""
    found: set[SecretReference] = set()
    for text in _iter_texts(value):
        found.update(_decode(match) for match in _REFERENCE.finditer(text))
    return found


def fill_in(value: Any, secrets: Mapping[SecretReference, str]) -> Any:
    """Return a value with the references in its texts replaced."""
    if isinstance(value, str):
        if "\0" not in value:
            return value
        return _REFERENCE.sub(lambda match: secrets[_decode(match)], value)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: fill_in(item, secrets) for key, item in items}
    if isinstance(value, list | tuple):
        items = cast("Iterable[Any]", value)
        return type(value)(fill_in(item, secrets) for item in items)
    return value


def dump_referencing_parts(server: BackendConfig) -> dict[str, Any]:
    """Return the parts of a server's configuration that may contain references, as plain values."""
    return server.model_dump(include=set(REFERENCING_KEYS - _LATER_KEYS))


def _decode(match: re.Match[str]) -> SecretReference:
    return SecretReference(cast(ReferenceKind, match[1]), unquote(match[2]))


def _iter_texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in cast("Mapping[str, Any]", value).values():
            yield from _iter_texts(item)
    elif isinstance(value, list | tuple):
        for item in cast("Iterable[Any]", value):
            yield from _iter_texts(item)


class KnownSecrets:
    """Secret values that were read in this process, so that they can be masked wherever they would
    appear. The oldest are forgotten above `MAX_KNOWN_VALUES`."""

    def __init__(self) -> None:
        self._values: dict[str, None] = {}
        self._lock = threading.Lock()
        self.version = 0
        """Changes with every new value."""

    def add(self, value: str) -> None:
        with self._lock:
            if value in self._values:
                return
            self._values[value] = None
            if len(self._values) > MAX_KNOWN_VALUES:
                del self._values[next(iter(self._values))]
            self.version += 1

    def list_values(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._values)


known_secrets = KnownSecrets()
"""One for the process: whatever masks texts masks the values read by any gateway in it."""

EncodeReference = Callable[[ReferenceKind, str], str]
"""Returns what takes the place of a reference; raises ValueError with advice."""
