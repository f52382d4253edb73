"""`skills/list` and `skills/get` for clients that know skills: those of all servers that this view
shows, under the addresses by which it serves their files."""

from collections.abc import Iterator

from portico.calls.pipeline import CallContext
from portico.catalog.skills import SKILLS_EXTENSION, get_entry, is_skill
from portico.catalog.tool import Tool
from portico.errors import INVALID_PARAMS, RemoteError
from portico.profiles.profile_state import ProfileState
from portico.rendering.cursor import make_list_page
from portico.rendering.resource_uris import to_outer_uri
from portico.upstream.backend import Raw

SKILL_METHODS = ("skills/list", "skills/get")
TTL_MS = 60_000


class ProfileSkills:
    """The skills of one view. A transparent view passes these methods on instead."""

    def __init__(self, profile_state: ProfileState) -> None:
        self._profile_state = profile_state

    async def list_skills(self, params: Raw, context: CallContext) -> Raw:
        """Return a page of the skills."""
        snapshot = self._profile_state.snapshot
        skills = await snapshot.run_scan(lambda: [*self._iterate()])
        page = make_list_page(
            "skills/list", "skills", skills, snapshot.version, params, render=_to_outer_entry
        )
        return {**page, "ttlMs": TTL_MS, "cacheScope": "private"}

    async def get_skill(self, params: Raw, context: CallContext) -> Raw:
        """Return the entry of one skill; raises RemoteError for one that is not shown."""
        uri = params.get("uri")
        snapshot = self._profile_state.snapshot
        skills = await snapshot.run_scan(lambda: [*self._iterate()])
        for tool in skills:
            if to_outer_uri(tool.server, get_entry(tool)["uri"]) == uri:
                found = _to_outer_entry(tool)
                return {"skill": found, "ttlMs": TTL_MS, "cacheScope": "private"}
        raise RemoteError(INVALID_PARAMS, "there is no such skill here", {"uri": uri})

    def _iterate(self) -> Iterator[Tool]:
        """Yield the skills, in order; held ones are left out."""
        for _, entry in sorted(self._profile_state.snapshot.servers.items()):
            if SKILLS_EXTENSION in entry.extensions:
                tools = entry.tools.values()
                yield from (tool for tool in tools if is_skill(tool) and not tool.held)


def _to_outer_entry(tool: Tool) -> Raw:
    entry = get_entry(tool)
    outer = {**entry, "uri": to_outer_uri(tool.server, entry["uri"])}
    if isinstance(files := entry.get("resources"), list):
        outer["resources"] = [
            {**file, "uri": to_outer_uri(tool.server, file["uri"])} for file in files
        ]
    return outer
