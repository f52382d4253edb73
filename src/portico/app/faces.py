"""What a profile's configuration makes of its view. Pure."""

from collections.abc import Iterable

from portico.access import Scope
from portico.config import Config
from portico.disclosure.view import Face


def face_of(config: Config, profile: str | None) -> Face:
    """How the house looks to who comes by a profile; None is the front door."""
    settings = config.view(profile)
    return Face(
        exposure=settings.exposure,
        scope=Scope(settings.servers, settings.tools),
        prefixed=config.prefix == "always",
        discovery_budget=settings.discovery_budget,
        result_budget=settings.result_budget,
        metatools=settings.metatools,
        languages=config.code.languages,
        pins=config.pins,
        intent=settings.intent,
        top_k=settings.top_k,
        listing_budget=settings.listing_budget,
        profile=profile or "",
        unlisted=_hides_nothing(config, settings.tools),
    )


def _hides_nothing(config: Config, tools: Iterable[str]) -> bool:
    rules = [server.tools for server in config.servers.values()]
    return "*" in tools and all(rule.allow == ("*",) and not rule.deny for rule in rules)
