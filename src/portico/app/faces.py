"""What a profile's configuration makes of its view. Pure."""

from dataclasses import replace

from portico.access import Globs, OfferRules, Scope
from portico.config import BackendConfig, Config
from portico.disclosure.view import Face


def face_of(config: Config, profile: str | None) -> Face:
    """How the house looks to who comes by a profile; None is the front door."""
    settings = config.view(profile)
    rules = tuple(_offer_rules(name, server) for name, server in config.servers.items())
    scope = Scope(
        settings.servers,
        settings.tools,
        settings.resources,
        settings.prompts,
        tuple(rule for rule in rules if rule.unlisted or not rule.hides_nothing),
    )
    return Face(
        exposure=settings.exposure,
        scope=scope,
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
        unlisted=replace(scope, servers=("*",)).everything,
    )


def _offer_rules(name: str, server: BackendConfig) -> OfferRules:
    tools, resources, prompts = server.tools, server.resources, server.prompts
    return OfferRules(
        name,
        narrowed="*" not in tools.allow or bool(tools.deny),
        resources=Globs(resources.allow, resources.deny),
        prompts=Globs(prompts.allow, prompts.deny),
        unlisted=resources.unlisted,
    )
