"""What a launcher is told: one JSON object on its command line."""

import json
from dataclasses import asdict, dataclass

NETWORKS = ("none", "loopback", "all")
FAILED = 125
"""Exit code of a launcher that could not contain its server, which was then not started."""
FAILURE_PREFIX = "containment error: "
"""Begins the line on stderr that says why."""


@dataclass(frozen=True)
class Specification:
    """How one server is contained. Paths are absolute."""

    command: tuple[str, ...]
    """Program and arguments; the program is a path."""
    network: str
    read: tuple[str, ...]
    """Files and folders that may be read and executed."""
    write: tuple[str, ...]
    """Files and folders that may also be changed."""
    home: str
    """Folder of its own that stays: HOME and caches."""
    temporary: str
    """Folder of its own for temporary files, where it has no /tmp of its own."""
    root: str
    """Empty folder on which the file system of its own is built."""
    cwd: str
    links: tuple[tuple[str, str], ...] = ()
    """Path below the home, and what a symbolic link there points to."""
    refused_ports: tuple[int, ...] = ()
    """TCP ports that it may not connect to: those of the gateway itself."""
    own_variables: tuple[tuple[str, str], ...] = ()
    """Environment variables for folders of its own; `{home}` and `{temporary}` are filled in."""
    has_namespaces: bool = True
    """Whether it gets namespaces; without them some of the restrictions are narrower."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Specification":
        data = json.loads(text)
        for key in ("command", "read", "write", "refused_ports"):
            data[key] = tuple(data[key])
        for key in ("links", "own_variables"):
            data[key] = tuple((first, second) for first, second in data[key])
        return cls(**data)
