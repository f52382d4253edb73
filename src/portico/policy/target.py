"""What a request is about: a tool, a resource, a prompt, or a server itself. Pure."""

from dataclasses import dataclass
from typing import Literal

TargetKind = Literal["tool", "resource", "prompt", "server"]


@dataclass(frozen=True, slots=True)
class Target:
    kind: TargetKind
    """`server`: a request to it that is about none of the others, such as a method of its own."""
    server: str
    name: str = ""
    """Name of the tool or prompt, URI of the resource or text of the template, or the method."""
    category: str = ""
    is_read_only: bool = False
    """Whether the tool is known to be."""
    is_destructive: bool = False

    @property
    def address(self) -> str:
        return f"{self.server}.{self.name}" if self.name else self.server
