"""Which tools models were told of, under which names. A model may call what it was told of, and nothing else."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.config import Exposure
from portico.disclosure.listable import listable
from portico.disclosure.view import View
from portico.upstream.backend import Raw

_TOLD = 20


class Offering:
    """The names that one gateway's models know."""

    def __init__(self, exposure: Exposure) -> None:
        self._exposure = exposure
        self._names: set[str] = set()
        self._exposures: set[Exposure] = set()
        self._snapshot: Snapshot | None = None
        self._flat: Mapping[str, str] = {}

    def offered(self, names: Iterable[str], exposure: Exposure) -> None:
        """A model is told of these too."""
        self._names.update(names)
        self._exposures.add(exposure)

    @property
    def exposure(self) -> Exposure:
        """`code` where models know of nothing else, else `meta`."""
        return "code" if (self._exposures or {self._exposure}) == {"code"} else "meta"

    def has(self, name: str, view: View) -> bool:
        """Whether a model may call this; before it was told of anything, what the exposure shows."""
        if self._names:
            return name in self._names
        return name in self._shown(view) or (self._exposure in ("full", "semantic") and name in view.snapshot.flat)

    def listed(self, view: View) -> list[str]:
        """Some of what a model may call, for one that called something else."""
        names = sorted(self._names) or [*self._shown(view)]
        return [*names[:_TOLD], *(["…"] if len(names) > _TOLD else [])]

    def _shown(self, view: View) -> tuple[str, ...]:
        return replace(view.face, exposure=self._exposure).enabled

    def flat(self, snapshot: Snapshot) -> Mapping[str, str]:
        """Every tool's address with the name that models call it by: 1 to 64 of A-Z a-z 0-9 _ -, unique."""
        if self._snapshot is not snapshot:
            self._snapshot = snapshot
            self._flat = {tool.address: name for name, tool in snapshot.flat.items()}
        return self._flat

    def definition(self, snapshot: Snapshot, tool: Tool) -> Raw:
        """A tool's MCP definition under that name."""
        return listable(tool.definition, self.flat(snapshot)[tool.address])
