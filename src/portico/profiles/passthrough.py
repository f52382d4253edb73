"""Resources, prompts and completion of the upstream servers, under distinct names."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from portico.calls.pipeline import CallContext, CallPipeline
from portico.catalog.address import find_nearest_names
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import quote_text
from portico.errors import INVALID_PARAMS, RemoteError
from portico.meta_tools.result_links import ResultLinks, confine_links
from portico.profiles.apps import Apps
from portico.profiles.profile_state import ProfileState
from portico.profiles.resources import RESOURCES, make_not_found_error
from portico.rendering.cursor import make_list_page
from portico.rendering.resource_uris import (
    parse_app_uri,
    parse_outer_uri,
    rename_contents,
    to_outer_uri,
)
from portico.rendering.strict_definitions import to_strict_offer
from portico.upstream.backend import Raw

GATEWAY_URIS = tuple(resource["uri"] for resource in RESOURCES)
RenameOffer = Callable[[str, Raw], Raw]
_MAX_COMPARED = 2_000
"""Maximum number of resources that an unknown URI is compared with."""
_NO_SESSION_HINT = (
    f"a link that a tool gave is read without a session as {to_outer_uri('SERVER', 'URI')}"
)
_UNLISTED_HINT = (
    "{} lists no such resource and no template for it; "
    "`resources.unlisted: true` in its entry lets it be asked"
)


def _rename_prompt(name: str, prompt: Raw) -> Raw:
    return {**prompt, "name": name}


class UpstreamOffers:
    """Resources and prompts of the servers of one view."""

    def __init__(
        self,
        profile_state: ProfileState,
        call_pipeline: CallPipeline,
        links: ResultLinks,
        apps: Apps,
    ) -> None:
        self.to_outer_uri = apps.to_outer_uri
        self._profile_state = profile_state
        self._apps = apps
        self._call_pipeline = call_pipeline
        self._links = links

    async def list_resources(self, params: Raw, gateway_items: Sequence[Raw]) -> Raw:
        """Return a page of the resources, the gateway's first."""
        items = (
            (server, resource)
            for server, resource in self._iterate_offers(lambda entry: entry.offers.resources)
            if not self._profile_state.snapshot.servers[server].skills_by_uri
            or self._profile_state.can_see_resource(server, resource["uri"])
        )
        return await self._make_page(
            "resources/list", "resources", gateway_items, items, self._rename_resource, params
        )

    def _rename_resource(self, server: str, resource: Raw) -> Raw:
        return {**resource, "uri": self.to_outer_uri(server, resource["uri"])}

    def _rename_template(self, server: str, template: Raw) -> Raw:
        return {**template, "uriTemplate": self.to_outer_uri(server, template["uriTemplate"])}

    async def list_templates(self, params: Raw, gateway_items: Sequence[Raw]) -> Raw:
        """Return a page of the resource templates, the gateway's first."""
        items = self._iterate_offers(lambda entry: entry.offers.templates)
        return await self._make_page(
            "resources/templates/list",
            "resourceTemplates",
            gateway_items,
            items,
            self._rename_template,
            params,
        )

    async def list_prompts(self, params: Raw, gateway_items: Sequence[Raw]) -> Raw:
        """Return a page of the prompts, the gateway's first."""
        snapshot = self._profile_state.snapshot
        await snapshot.load_lookup("flat_prompts")
        items = ((name, prompt) for name, (_, prompt) in snapshot.flat_prompts.items())
        if self._profile_state.transparent_server:
            items = self._iterate_offers(lambda entry: entry.offers.prompts)
        return await self._make_page(
            "prompts/list", "prompts", gateway_items, items, _rename_prompt, params
        )

    def _iterate_offers(
        self, pick: Callable[[ServerEntry], tuple[Raw, ...]]
    ) -> Iterator[tuple[str, Raw]]:
        for name, entry in sorted(self._profile_state.snapshot.servers.items()):
            for item in pick(entry):
                yield name, item

    async def _make_page(
        self,
        method: str,
        key: str,
        gateway_items: Sequence[Raw],
        items: Iterable[tuple[str, Raw]],
        rename: RenameOffer,
        params: Raw,
    ) -> Raw:
        snapshot = self._profile_state.snapshot
        transparent = self._profile_state.transparent_server
        await snapshot.load_lookup("offers_version")

        def render_item(named_item: tuple[str, Raw]) -> Raw:
            name, item = named_item
            if not name:
                return item
            return to_strict_offer(item if transparent else rename(name, item))

        all_items = [*(("", item) for item in gateway_items), *items]
        return make_list_page(
            method, key, all_items, snapshot.offers_version, params, render=render_item
        )

    async def request_resource(self, method: str, params: Raw, context: CallContext) -> Raw:
        """Read, subscribe to or unsubscribe from one resource."""
        # Unsubscribing is allowed even if the resource no longer exists.
        must_be_known = method != "resources/unsubscribe"
        server, inner = self.locate_resource(
            params["uri"], context.caller.link_owner, must_be_known=must_be_known
        )
        result = await self._call_pipeline.request(
            server, method, {**params, "uri": inner}, context
        )
        if self._profile_state.transparent_server:
            return result
        if method == "resources/read":
            self._apps.remember_opened(context.caller, server, inner)

        def rename(uri: str) -> str:
            # Clients look the contents up under the URI that they requested.
            return params["uri"] if uri == inner else self.to_outer_uri(server, uri)

        return rename_contents(result, rename)

    def locate_resource(
        self, uri: str, owner: str, *, must_be_known: bool = True
    ) -> tuple[str, str]:
        """Return the server that has a resource, or gave this caller a link to it, and its own URI.

        Raises RemoteError if there is none. With `must_be_known`, also if the server neither lists
        the URI nor a template for it and gave this caller no link, or if this view hides it.
        """
        snapshot = self._profile_state.snapshot
        transparent = self._profile_state.transparent_server
        if transparent and self._profile_state.settings.allows_unlisted:
            return transparent, uri
        found = (transparent, uri) if transparent else parse_outer_uri(uri) or parse_app_uri(uri)
        if found is None or found[0] not in snapshot.servers:
            found = self._find_claiming_server(uri, owner)
        if found is None:
            raise self._make_not_found_error(uri, "" if owner else _NO_SESSION_HINT)
        if must_be_known and not self._is_visible(*found, owner):
            raise self._make_not_found_error(uri)
        if must_be_known and not self._is_known(*found, owner):
            raise self._make_not_found_error(uri, self._explain_unknown(found[0]))
        return found

    def _find_claiming_server(self, uri: str, owner: str) -> tuple[str, str] | None:
        """Return the only server that lists a URI as its own, or gave this caller a link to it."""
        servers = self._profile_state.scoped_snapshot.servers
        claimants = {
            name
            for name, entry in servers.items()
            if uri in entry.resource_uris or uri in entry.app_uris
        }
        # A server can claim another's URI: if more than one does, none is asked.
        if owner:
            claimants |= self._links.find_servers(owner, uri) & servers.keys()
        if owner and not claimants:
            # An app reads by its server's own names, those of templates too.
            claimants = {
                name
                for name, entry in servers.items()
                if self._apps.has_opened(owner, entry) and entry.has_resource(uri)
            }
        return (claimants.pop(), uri) if len(claimants) == 1 else None

    def _is_visible(self, server: str, uri: str, owner: str) -> bool:
        # Callers without a session or a handle share their links, so these must not reveal what a
        # profile hides.
        linked = bool(owner) and server in self._links.find_servers(owner, uri)
        linked = linked or self._apps.has_app(server, uri)
        return self._profile_state.can_see_resource(server, uri, linked=linked)

    def _is_known(self, server: str, uri: str, owner: str) -> bool:
        if (
            self._profile_state.settings.scope.can_read_unlisted(server)
            or server in self._links.find_servers(owner, uri)
            or self._apps.has_app(server, uri)
        ):
            return True
        return self._profile_state.is_resource_listed(server, uri)

    def _explain_unknown(self, server: str) -> str:
        if self._profile_state.snapshot.servers[server].is_listed:
            return _UNLISTED_HINT.format(server)
        return f"{server} has not been listed yet, so it is not known what it has"

    def _make_not_found_error(self, uri: str, reason: str = "") -> RemoteError:
        listed = self._iterate_offers(lambda entry: entry.offers.resources)
        uris = (
            self.to_outer_uri(server, resource["uri"])
            for server, resource in islice(listed, _MAX_COMPARED)
        )
        return make_not_found_error(uri, find_nearest_names(uri, [*GATEWAY_URIS, *uris]), reason)

    def can_show_resource(self, server: str, uri: str) -> bool:
        """Return whether a server's resource may be mentioned to this view's clients."""
        return self._profile_state.can_see_resource(server, uri, linked=True)

    async def get_prompt(self, params: Raw, context: CallContext) -> Raw:
        """Get a server's prompt."""
        await self._profile_state.snapshot.load_lookup("flat_prompts")
        server, name = self._locate_prompt(params.get("name"))
        result = await self._call_pipeline.request(
            server, "prompts/get", {**params, "name": name}, context
        )
        self._links.remember(context.caller, server, result)
        if self._profile_state.transparent_server:
            return result
        return await confine_links(server, result, self._apps.to_outer_link)

    def _locate_prompt(self, name: Any) -> tuple[str, str]:
        if not isinstance(name, str):
            raise RemoteError(INVALID_PARAMS, "a prompt needs a name")
        transparent = self._profile_state.transparent_server
        snapshot = self._profile_state.snapshot
        if transparent:
            listed = snapshot.servers[transparent].offers.prompts
            if self._profile_state.settings.allows_unlisted or any(
                prompt["name"] == name for prompt in listed
            ):
                return transparent, name
        elif found := snapshot.flat_prompts.get(name):
            return found[0], found[1]["name"]
        raise RemoteError(INVALID_PARAMS, f"Unknown prompt: {quote_text(name)}")

    async def complete_argument(self, params: Raw, context: CallContext) -> Raw:
        """Return a server's completion proposals for an argument."""
        reference = params.get("ref")
        if self._profile_state.transparent_server and self._profile_state.settings.allows_unlisted:
            return await self._call_pipeline.request(
                self._profile_state.transparent_server, "completion/complete", params, context
            )
        if not isinstance(reference, dict):
            raise RemoteError(INVALID_PARAMS, "completion/complete needs a ref")
        if reference.get("type") == "ref/prompt":
            await self._profile_state.snapshot.load_lookup("flat_prompts")
            server, name = self._locate_prompt(reference.get("name"))
            inner: Raw = {**reference, "name": name}
        else:
            server, uri = self._locate_template(
                str(reference.get("uri")), context.caller.link_owner
            )
            inner = {**reference, "uri": uri}
        return await self._call_pipeline.request(
            server, "completion/complete", {**params, "ref": inner}, context
        )

    def _locate_template(self, uri: str, owner: str) -> tuple[str, str]:
        transparent = self._profile_state.transparent_server
        servers = self._profile_state.snapshot.servers
        found = (transparent, uri) if transparent else parse_outer_uri(uri) or parse_app_uri(uri)
        if found is not None and found[0] in servers:
            listed = servers[found[0]].offers.templates
            if any(template["uriTemplate"] == found[1] for template in listed):
                return found
        return self.locate_resource(uri, owner)
