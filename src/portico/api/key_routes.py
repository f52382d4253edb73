"""Routes of keys and of the configuration, for who may administer the gateway."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from portico.api import activity_models as models
from portico.api.gateway_services import GatewayServices
from portico.api.json_body import describe_json_body, read_json_body
from portico.api.params import NameInPath, NoParams
from portico.api.responses import InvalidRequest, make_uncached_response
from portico.api.tool_routes import NOT_FOUND_RESPONSE
from portico.auth.key_administration import add_key, parse_grace, revoke_keys, rotate_key
from portico.auth.keys import get_key_state, parse_duration
from portico.callers import LOCAL_USER, PRINCIPAL_KEY, Caller
from portico.catalog.tool import sanitize_text
from portico.config_file.config_changes import EDITABLE_KEYS, EDITABLE_SERVER_KEYS
from portico.config_file.mask import mask_config
from portico.errors import PorticoError, UnknownName
from portico.observability.audit import AuditEntry
from portico.profiles.json_objects import to_iso_time
from portico.storage.key_store import KeyStore
from portico.storage.rows import KeyRow


def key_routes(services: GatewayServices) -> APIRouter:
    """Build the routes `/keys` and `/config`."""
    router = APIRouter(tags=["administration"])

    def get_store() -> KeyStore:
        if services.keys is None:
            raise PorticoError("this gateway keeps no keys")
        return services.keys

    @router.get("/keys", response_model=models.KeyList, summary="The keys")
    async def list_keys(_: Annotated[NoParams, Query()]) -> Response:
        """Names, what they open, when they end and were last used. The keys themselves are kept
        nowhere. Not for the holder of a key."""
        now = time.time()
        keys = await services.keys.load() if services.keys is not None else []
        return make_uncached_response(models.KeyList(keys=[_to_card(key, now) for key in keys]))

    @router.post(
        "/keys",
        response_model=models.NewKey,
        summary="Make a key",
        responses={
            413: {"description": "The body is too large."},
            415: {"description": "The body is not said to be JSON."},
        },
        openapi_extra=describe_json_body(models.KeyRequest),
    )
    async def make_key(request: Request, _: Annotated[NoParams, Query()]) -> Response:
        """Makes a key and shows it, once. From the first one on, every request over HTTP needs a
        key or the token."""
        wanted = await read_json_body(request, models.KeyRequest)
        config = services.get_config().config
        try:
            for profile in wanted.profiles:
                config.resolve_profile(profile)
            key, text, _is_first = await add_key(
                get_store(),
                wanted.name,
                profiles=tuple(dict.fromkeys(wanted.profiles)),
                is_read_only=wanted.read_only,
                lifetime_s=parse_duration(wanted.expires) if wanted.expires else None,
            )
        except PorticoError as error:
            raise InvalidRequest(error) from error
        await services.reload_keys()
        _record(services, request, "keys/add", key.id)
        card = _to_card(key, time.time())
        return make_uncached_response(models.NewKey(**card.model_dump(), key=text))

    @router.post(
        "/keys/{name}/rotate",
        response_model=models.NewKey,
        summary="Replace a key",
        responses={
            **NOT_FOUND_RESPONSE,
            413: {"description": "The body is too large."},
            415: {"description": "The body is not said to be JSON."},
        },
        openapi_extra=describe_json_body(models.KeyRotation),
    )
    async def replace_key(
        request: Request, name: NameInPath, _: Annotated[NoParams, Query()]
    ) -> Response:
        """Makes another key with the same rights and shows it, once; the old one ends after
        `grace`."""
        wanted = await read_json_body(request, models.KeyRotation)
        try:
            grace_s = parse_grace(wanted.grace)
            lifetime_s = parse_duration(wanted.expires) if wanted.expires else None
        except PorticoError as error:
            raise InvalidRequest(error) from error
        with clean_name():
            key, text, replaced = await rotate_key(
                get_store(), name, grace_s=grace_s, lifetime_s=lifetime_s
            )
        await services.reload_keys()
        _record(services, request, "keys/rotate", key.id)
        card = _to_card(key, time.time()).model_dump()
        ids = [earlier.id for earlier in replaced]
        return make_uncached_response(models.NewKey(**card, key=text, replaced=ids))

    @router.delete(
        "/keys/{name}",
        response_model=models.RevokedKeys,
        summary="Revoke a key",
        responses=NOT_FOUND_RESPONSE,
    )
    async def revoke_key(
        request: Request, name: NameInPath, _: Annotated[NoParams, Query()]
    ) -> Response:
        """Ends the key with this id now, or all valid ones of a name. Without a valid key requests
        over HTTP still need one, or the token."""
        with clean_name():
            revoked = await revoke_keys(get_store(), name)
        await services.reload_keys()
        for key in revoked:
            _record(services, request, "keys/revoke", key.id)
        return make_uncached_response(models.RevokedKeys(revoked=[key.id for key in revoked]))

    @router.get(
        "/config", response_model=models.EffectiveConfig, summary="The effective configuration"
    )
    async def get_config(_: Annotated[NoParams, Query()]) -> Response:
        """Every key with its value, secrets masked, and where it came from."""
        report = services.get_config()
        return make_uncached_response(
            models.EffectiveConfig(
                files=list(report.files),
                config=mask_config(report.config),
                sources=dict(report.sources),
                warnings=list(report.warnings),
                problem=report.problem,
                editable=[*sorted(EDITABLE_KEYS), *EDITABLE_SERVER_KEYS],
            )
        )

    return router


@contextmanager
def clean_name() -> Generator[None]:
    """Clean the text of an UnknownName, which has the name as it came."""
    try:
        yield
    except UnknownName as error:
        raise UnknownName(
            sanitize_text(error.message), nearest=error.nearest, advice=error.advice
        ) from error


def _record(services: GatewayServices, request: Request, method: str, key_id: str) -> None:
    """Write a change of keys to the audit log."""
    if (log := services.get_audit()) is not None:
        principal = request.scope.get(PRINCIPAL_KEY, LOCAL_USER)
        caller = Caller(name="rest", principal=principal)
        entry = AuditEntry(key_id, "", None, "ok", caller, via="rest")
        log.write(entry._replace(method=method))


def _to_card(key: KeyRow, now: float) -> models.KeyCard:
    return models.KeyCard(
        id=key.id,
        name=key.name,
        state=get_key_state(key, now),
        profiles=list(key.profiles),
        read_only=key.is_read_only,
        created=to_iso_time(key.created_at),
        expires=_to_time(key.expires_at),
        last_used=_to_time(key.used_at),
    )


def _to_time(at: float | None) -> Any:
    return None if at is None else to_iso_time(at)
