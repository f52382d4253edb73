"""Resources, prompts and completion of the upstream servers, under names that tell them apart."""

from collections.abc import Callable, Iterable
from typing import Any

from portico.catalog.address import nearest
from portico.catalog.snapshot import ServerEntry
from portico.catalog.visible import quoted
from portico.disclosure.links import Links
from portico.disclosure.listable import listable_offer
from portico.disclosure.namespace import (
    inner_uri,
    outer_contents,
    outer_resource,
    outer_template,
    outer_uri,
)
from portico.disclosure.resources import RESOURCES, not_found
from portico.disclosure.sight import Sight
from portico.errors import INVALID_PARAMS, RemoteError
from portico.execution.call import Calls, Origin
from portico.upstream.backend import Raw

OWN = tuple(resource["uri"] for resource in RESOURCES)
Rename = Callable[[str, Raw], Raw]
_WITHOUT_SESSION = f"a link that a tool gave is read without a session as {outer_uri('SERVER', 'URI')}"


class Offered:
    """What one view's servers offer beside tools."""

    def __init__(self, sight: Sight, calls: Calls, links: Links) -> None:
        self._sight = sight
        self._calls = calls
        self._links = links

    @property
    def resources(self) -> list[Raw]:
        """Every listed resource."""
        return self._all(lambda entry: entry.offers.resources, outer_resource)

    @property
    def templates(self) -> list[Raw]:
        """Every listed resource template."""
        return self._all(lambda entry: entry.offers.templates, outer_template)

    @property
    def prompts(self) -> list[Raw]:
        """Every listed prompt."""
        snapshot, sole = self._sight.snapshot, self._sight.sole
        if sole:
            return [listable_offer(prompt) for prompt in snapshot.servers[sole].offers.prompts]
        return [listable_offer({**prompt, "name": name}) for name, (_, prompt) in snapshot.flat_prompts.items()]

    def _all(self, pick: Callable[[ServerEntry], tuple[Raw, ...]], rename: Rename) -> list[Raw]:
        servers: Iterable[tuple[str, ServerEntry]] = sorted(self._sight.snapshot.servers.items())
        sole = self._sight.sole
        return [listable_offer(item if sole else rename(name, item)) for name, entry in servers for item in pick(entry)]

    async def about(self, method: str, params: Raw, origin: Origin) -> Raw:
        """Read or watch one resource."""
        server, inner = self.locate(params["uri"], origin.caller.state)
        result = await self._calls.ask(server, method, {**params, "uri": inner}, origin)
        return result if self._sight.sole else outer_contents(server, result)

    def locate(self, uri: str, owner: str) -> tuple[str, str]:
        """The server that has a resource, or gave this caller a link to it, and the URI it knows it by."""
        snapshot, sole = self._sight.snapshot, self._sight.sole
        if sole:
            return sole, uri
        if (found := inner_uri(uri)) and found[0] in snapshot.servers:
            return found
        claimed = {
            name
            for name, entry in snapshot.servers.items()
            if any(resource["uri"] == uri for resource in entry.offers.resources)
        }
        # A server can claim what is another's: whoever else does, nobody is asked in its place.
        claimed |= self._links.owners(owner, uri) & snapshot.servers.keys()
        if len(claimed) == 1:
            return claimed.pop(), uri
        near = nearest(uri, [*OWN, *(resource["uri"] for resource in self.resources)])
        raise not_found(uri, near, "" if owner else _WITHOUT_SESSION)

    def outer_uri(self, server: str, uri: str) -> str:
        """A server's URI as this view's clients know it."""
        return uri if self._sight.sole else outer_uri(server, uri)

    async def prompt(self, params: Raw, origin: Origin) -> Raw:
        """A server's prompt."""
        server, name = self._locate_prompt(params.get("name"))
        return await self._calls.ask(server, "prompts/get", {**params, "name": name}, origin)

    def _locate_prompt(self, name: Any) -> tuple[str, str]:
        if not isinstance(name, str):
            raise RemoteError(INVALID_PARAMS, "a prompt needs a name")
        if self._sight.sole:
            return self._sight.sole, name
        if found := self._sight.snapshot.flat_prompts.get(name):
            return found[0], found[1]["name"]
        raise RemoteError(INVALID_PARAMS, f"Unknown prompt: {quoted(name)}")

    async def complete(self, params: Raw, origin: Origin) -> Raw:
        """What a server proposes for an argument."""
        reference = params.get("ref")
        if self._sight.sole:
            return await self._calls.ask(self._sight.sole, "completion/complete", params, origin)
        if not isinstance(reference, dict):
            raise RemoteError(INVALID_PARAMS, "completion/complete needs a ref")
        if reference.get("type") == "ref/prompt":
            server, name = self._locate_prompt(reference.get("name"))
            inner: Raw = {**reference, "name": name}
        else:
            server, uri = self.locate(str(reference.get("uri")), origin.caller.state)
            inner = {**reference, "uri": uri}
        return await self._calls.ask(server, "completion/complete", {**params, "ref": inner}, origin)
