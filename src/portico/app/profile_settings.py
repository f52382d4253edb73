"""Settings of a profile's view, built from the configuration. Pure."""

from dataclasses import replace

from portico.access import Globs, OfferRules, Scope
from portico.config import BackendConfig, Config
from portico.profiles.view import ProfileSettings


def build_profile_settings(config: Config, profile: str | None) -> ProfileSettings:
    """Build the settings of a profile; None is the default profile."""
    settings = config.resolve_profile(profile)
    rules = tuple(_build_offer_rules(name, server) for name, server in config.servers.items())
    scope = Scope(
        settings.servers,
        settings.tools,
        settings.resources,
        settings.prompts,
        tuple(rule for rule in rules if rule.allows_unlisted or not rule.is_unrestricted),
    )
    return ProfileSettings(
        exposure=settings.exposure,
        scope=scope,
        prefixed=config.prefix == "always",
        discovery_budget=settings.discovery_budget,
        result_budget=settings.result_budget,
        meta_tools=settings.metatools,
        languages=config.code.languages,
        pins=config.pins,
        intent=settings.intent,
        top_k=settings.top_k,
        listing_budget=settings.listing_budget,
        profile=profile or "",
        allows_unlisted=replace(scope, servers=("*",)).is_unrestricted,
    )


def _build_offer_rules(name: str, server: BackendConfig) -> OfferRules:
    tools = server.tools
    resources = server.resources
    prompts = server.prompts
    return OfferRules(
        name,
        has_hidden_tools="*" not in tools.allow or bool(tools.deny),
        resources=Globs(resources.allow, resources.deny),
        prompts=Globs(prompts.allow, prompts.deny),
        allows_unlisted=resources.unlisted,
    )
