"""Resources, prompts and completion of the upstream servers, under names that tell them apart."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from portico.catalog.address import nearest
from portico.catalog.snapshot import ServerEntry
from portico.catalog.visible import quoted
from portico.disclosure.links import Links
from portico.disclosure.listable import listable_offer
from portico.disclosure.namespace import (
    confine_links,
    inner_uri,
    outer_contents,
    outer_resource,
    outer_template,
    outer_uri,
)
from portico.disclosure.pages import page
from portico.disclosure.resources import RESOURCES, not_found
from portico.disclosure.sight import Sight
from portico.errors import INVALID_PARAMS, RemoteError
from portico.execution.call import Calls, Origin
from portico.upstream.backend import Raw

OWN = tuple(resource["uri"] for resource in RESOURCES)
Rename = Callable[[str, Raw], Raw]
_COMPARED = 2_000
"""Resources that an address is compared with which leads nowhere."""
_WITHOUT_SESSION = f"a link that a tool gave is read without a session as {outer_uri('SERVER', 'URI')}"
_UNLISTED = "{} lists no such resource and no template for it; `resources.unlisted: true` in its entry lets it be asked"


def _renamed(name: str, prompt: Raw) -> Raw:
    return {**prompt, "name": name}


class Offered:
    """What one view's servers offer beside tools."""

    def __init__(self, sight: Sight, calls: Calls, links: Links) -> None:
        self._sight = sight
        self._calls = calls
        self._links = links

    async def list_resources(self, params: Raw, ours: Sequence[Raw]) -> Raw:
        """A page of the resources, ours first."""
        items = self._all(lambda entry: entry.offers.resources)
        return await self._page("resources/list", "resources", ours, items, outer_resource, params)

    async def list_templates(self, params: Raw, ours: Sequence[Raw]) -> Raw:
        """A page of the resource templates, ours first."""
        items = self._all(lambda entry: entry.offers.templates)
        return await self._page("resources/templates/list", "resourceTemplates", ours, items, outer_template, params)

    async def list_prompts(self, params: Raw, ours: Sequence[Raw]) -> Raw:
        """A page of the prompts, ours first."""
        snapshot = self._sight.snapshot
        await snapshot.load("flat_prompts")
        flat = ((name, prompt) for name, (_, prompt) in snapshot.flat_prompts.items())
        items = self._all(lambda entry: entry.offers.prompts) if self._sight.sole else flat
        return await self._page("prompts/list", "prompts", ours, items, _renamed, params)

    def _all(self, pick: Callable[[ServerEntry], tuple[Raw, ...]]) -> Iterator[tuple[str, Raw]]:
        servers: Iterable[tuple[str, ServerEntry]] = sorted(self._sight.snapshot.servers.items())
        return ((name, item) for name, entry in servers for item in pick(entry))

    async def _page(
        self,
        method: str,
        key: str,
        ours: Sequence[Raw],
        items: Iterable[tuple[str, Raw]],
        rename: Rename,
        params: Raw,
    ) -> Raw:
        snapshot, sole = self._sight.snapshot, self._sight.sole
        await snapshot.load("offers_version")

        def show(one: tuple[str, Raw]) -> Raw:
            name, item = one
            if not name:
                return item
            return listable_offer(item if sole else rename(name, item))

        every = [*(("", item) for item in ours), *items]
        return page(method, key, every, snapshot.offers_version, params, show=show)

    async def about(self, method: str, params: Raw, origin: Origin) -> Raw:
        """Read or watch one resource."""
        # Whoever stops watching may do so whatever has become of the resource.
        known = method != "resources/unsubscribe"
        server, inner = self.locate(params["uri"], origin.caller.state, known=known)
        result = await self._calls.ask(server, method, {**params, "uri": inner}, origin)
        return result if self._sight.sole else outer_contents(server, result)

    def locate(self, uri: str, owner: str, *, known: bool = True) -> tuple[str, str]:
        """The server that has a resource, or gave this caller a link to it, and the URI it knows it by.

        Raises RemoteError where there is none, and with `known` also where the server does not list the address, has
        no listed template for it and gave this caller no link to it, or where this view does not show it.
        """
        snapshot, sole = self._sight.snapshot, self._sight.sole
        if sole and self._sight.face.unlisted:
            return sole, uri
        found = (sole, uri) if sole else inner_uri(uri)
        if found is None or found[0] not in snapshot.servers:
            found = self._claimed(uri, owner)
        if found is None:
            raise self._not_found(uri, "" if owner else _WITHOUT_SESSION)
        if known and not self._is_shown(*found, owner):
            raise self._not_found(uri)
        if known and not self._is_known(*found, owner):
            raise self._not_found(uri, self._why_unknown(found[0]))
        return found

    def _claimed(self, uri: str, owner: str) -> tuple[str, str] | None:
        """The one server that lists an address as its own, or gave this caller a link to it."""
        servers = self._sight.snapshot.servers
        claimed = {name for name, entry in servers.items() if uri in entry.resource_uris}
        # A server can claim what is another's: whoever else does, nobody is asked in its place.
        if owner:
            claimed |= self._links.owners(owner, uri) & servers.keys()
        return (claimed.pop(), uri) if len(claimed) == 1 else None

    def _is_shown(self, server: str, uri: str, owner: str) -> bool:
        # Callers without a session or a handle share their links: these open nothing that a profile hides.
        linked = bool(owner) and server in self._links.owners(owner, uri)
        return self._sight.face.scope.sees_resource(server, uri, linked=linked)

    def _is_known(self, server: str, uri: str, owner: str) -> bool:
        if self._sight.face.scope.passes_unlisted(server) or server in self._links.owners(owner, uri):
            return True
        return self._sight.lists_resource(server, uri)

    def _why_unknown(self, server: str) -> str:
        if self._sight.snapshot.servers[server].known:
            return _UNLISTED.format(server)
        return f"{server} has not been listed yet, so it is not known what it has"

    def _not_found(self, uri: str, why: str = "") -> RemoteError:
        listed = self._all(lambda entry: entry.offers.resources)
        uris = (self.outer_uri(server, resource["uri"]) for server, resource in islice(listed, _COMPARED))
        return not_found(uri, nearest(uri, [*OWN, *uris]), why)

    def shows(self, server: str, uri: str) -> bool:
        """Whether a resource of a server may be told of here."""
        return self._sight.face.scope.sees_resource(server, uri, linked=True)

    def outer_uri(self, server: str, uri: str) -> str:
        """A server's URI as this view's clients know it."""
        return uri if self._sight.sole else outer_uri(server, uri)

    async def prompt(self, params: Raw, origin: Origin) -> Raw:
        """A server's prompt."""
        await self._sight.snapshot.load("flat_prompts")
        server, name = self._locate_prompt(params.get("name"))
        result = await self._calls.ask(server, "prompts/get", {**params, "name": name}, origin)
        self._links.remember(origin.caller, server, result)
        return result if self._sight.sole else await confine_links(server, result)

    def _locate_prompt(self, name: Any) -> tuple[str, str]:
        if not isinstance(name, str):
            raise RemoteError(INVALID_PARAMS, "a prompt needs a name")
        sole, snapshot = self._sight.sole, self._sight.snapshot
        if sole:
            listed = snapshot.servers[sole].offers.prompts
            if self._sight.face.unlisted or any(prompt["name"] == name for prompt in listed):
                return sole, name
        elif found := snapshot.flat_prompts.get(name):
            return found[0], found[1]["name"]
        raise RemoteError(INVALID_PARAMS, f"Unknown prompt: {quoted(name)}")

    async def complete(self, params: Raw, origin: Origin) -> Raw:
        """What a server proposes for an argument."""
        reference = params.get("ref")
        if self._sight.sole and self._sight.face.unlisted:
            return await self._calls.ask(self._sight.sole, "completion/complete", params, origin)
        if not isinstance(reference, dict):
            raise RemoteError(INVALID_PARAMS, "completion/complete needs a ref")
        if reference.get("type") == "ref/prompt":
            await self._sight.snapshot.load("flat_prompts")
            server, name = self._locate_prompt(reference.get("name"))
            inner: Raw = {**reference, "name": name}
        else:
            server, uri = self._locate_template(str(reference.get("uri")), origin.caller.state)
            inner = {**reference, "uri": uri}
        return await self._calls.ask(server, "completion/complete", {**params, "ref": inner}, origin)

    def _locate_template(self, uri: str, owner: str) -> tuple[str, str]:
        sole, servers = self._sight.sole, self._sight.snapshot.servers
        found = (sole, uri) if sole else inner_uri(uri)
        if found is not None and found[0] in servers:
            listed = servers[found[0]].offers.templates
            if any(template["uriTemplate"] == found[1] for template in listed):
                return found
        return self.locate(uri, owner)
