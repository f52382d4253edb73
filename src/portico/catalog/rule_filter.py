"""What the callers with the same rules see of a snapshot."""

from collections.abc import Mapping
from dataclasses import replace

from portico.catalog.listing import ServerOffers
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool
from portico.policy.rules import CallerRules
from portico.policy.target import Target


def make_tool_target(tool: Tool, category: str = "") -> Target:
    """Return a tool as the rules see it."""
    return Target("tool", tool.server, tool.name, category, tool.is_read_only, tool.is_destructive)


class RuleFilter:
    """Restricts snapshots to what one caller's rules show; what did not change is reused."""

    def __init__(self, rules: CallerRules) -> None:
        self._rules = rules
        self._reads_categories = any(rule.reads_categories for rule in rules.rules)
        self._known: dict[str, tuple[ServerEntry, ServerEntry | None]] = {}
        """By server: an entry, and what is shown of it; None: nothing."""

    def restrict(self, snapshot: Snapshot) -> Snapshot:
        """Return what is shown of a snapshot. A server that offers something, none of which is
        shown, is left out."""
        known = {} if self._reads_categories else self._known
        found: dict[str, tuple[ServerEntry, ServerEntry | None]] = {}
        for name, entry in snapshot.servers.items():
            before = known.get(name)
            if before is None or before[0] is not entry:
                before = (entry, self._restrict_entry(entry, snapshot))
            found[name] = before
        self._known = found
        shown = {name: entry for name, (_, entry) in found.items() if entry is not None}
        return Snapshot(shown, snapshot.index, is_restricted=True)

    def _restrict_entry(self, entry: ServerEntry, snapshot: Snapshot) -> ServerEntry | None:
        rules = self._rules
        if rules.shows_all_of(entry.name):
            return entry
        if not rules.can_see_server(entry.name):
            return None
        undecided = rules.find_undecided(entry.name, entry.tools)
        tools = {
            key: tool
            for key, tool in entry.tools.items()
            if (
                rules.shows_rest
                if undecided is not None and key not in undecided
                else rules.can_see(make_tool_target(tool, self._get_category(tool, snapshot)))
            )
        }
        offers = self._restrict_offers(entry.name, entry.offers)
        offered = len(entry.tools) + entry.offers.count
        if offered and not tools and not offers.count:
            return None
        if len(tools) + offers.count == offered:
            return entry
        return replace(entry, tools=tools, offers=offers)

    def _get_category(self, tool: Tool, snapshot: Snapshot) -> str:
        return snapshot.get_category(tool.address) if self._reads_categories else ""

    def _restrict_offers(self, server: str, offers: ServerOffers) -> ServerOffers:
        can_see = self._rules.can_see

        def is_shown(item: Mapping[str, str], key: str) -> bool:
            kind = "prompt" if key == "name" else "resource"
            return can_see(Target(kind, server, item[key]))

        return ServerOffers(
            tuple(item for item in offers.resources if is_shown(item, "uri")),
            tuple(item for item in offers.templates if is_shown(item, "uriTemplate")),
            tuple(item for item in offers.prompts if is_shown(item, "name")),
        )
