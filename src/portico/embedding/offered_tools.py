"""The tools that models were given, by name; a model can call only those."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.config import Exposure
from portico.profiles.view import ProfileView
from portico.rendering.strict_definitions import to_strict_tool
from portico.upstream.backend import Raw

_MAX_LISTED = 20


class OfferedTools:
    """The tool names that one gateway's models were given."""

    def __init__(self, exposure: Exposure) -> None:
        self._exposure = exposure
        self._names: set[str] = set()
        self._exposures: set[Exposure] = set()
        self._snapshot: Snapshot | None = None
        self._flat_names: Mapping[str, str] = {}

    def add(self, names: Iterable[str], exposure: Exposure) -> None:
        """Record tools that a model was given."""
        self._names.update(names)
        self._exposures.add(exposure)

    @property
    def exposure(self) -> Exposure:
        """`code` if models were given nothing else, else `meta`."""
        if (self._exposures or {self._exposure}) == {"code"}:
            return "code"
        return "meta"

    def has(self, name: str, view: ProfileView) -> bool:
        """Return whether a model may call `name`; before `add`, whatever the exposure shows."""
        if self._names:
            return name in self._names
        return name in self._list_meta_tools(view) or (
            self._exposure in ("full", "semantic") and name in view.snapshot.tools_by_flat_name
        )

    def list_names(self, view: ProfileView) -> list[str]:
        """Return at most 20 names that a model may call, for an error message."""
        names = sorted(self._names) or [*self._list_meta_tools(view)]
        if len(names) <= _MAX_LISTED:
            return names
        return [*names[:_MAX_LISTED], "…"]

    def _list_meta_tools(self, view: ProfileView) -> tuple[str, ...]:
        return replace(view.settings, exposure=self._exposure).enabled_meta_tools

    def map_flat_names(self, snapshot: Snapshot) -> Mapping[str, str]:
        """Map every tool address to its unique flat name: 1 to 64 of A-Z a-z 0-9 _ -."""
        if self._snapshot is not snapshot:
            self._snapshot = snapshot
            self._flat_names = {
                tool.address: name for name, tool in snapshot.tools_by_flat_name.items()
            }
        return self._flat_names

    def make_definition(self, snapshot: Snapshot, tool: Tool) -> Raw:
        """Return a tool's MCP definition under its flat name."""
        return to_strict_tool(tool.definition, self.map_flat_names(snapshot)[tool.address])
