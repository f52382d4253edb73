"""The route of the people and programs that were seen."""

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from portico.api.models import ApiModel, optional
from portico.api.params import NoParams
from portico.api.responses import make_uncached_response
from portico.catalog.tool import sanitize_text
from portico.profiles.json_objects import to_iso_time
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import CallerUse

MAX_CALLERS = 5_000


class PersonCard(ApiModel):
    """A person or program, by its calls on record."""

    person: str = Field(description="What vouches for it, and the name there (`key ci`).")
    clients: list[str] = optional([], "What its clients call themselves, the latest first.")
    calls: int
    failures: int
    first: str
    last: str


class PersonList(ApiModel):
    """Who was seen, the latest first."""

    people: list[PersonCard]


def people_routes(store: GatewayStore) -> APIRouter:
    """Build the route `/people`."""
    router = APIRouter(tags=["administration"])

    @router.get("/people", response_model=PersonList, summary="Who was seen")
    async def list_people(_: Annotated[NoParams, Query()]) -> Response:
        """People and programs whose calls are on record. Not for the holder of a key."""
        found = await store.load_caller_use(MAX_CALLERS)
        return make_uncached_response(PersonList(people=summarize_callers(found)))

    return router


def summarize_callers(found: Iterable[CallerUse]) -> list[PersonCard]:
    """Sum up by person what each did with its clients."""
    by_person: dict[str, list[CallerUse]] = {}
    for use in found:
        by_person.setdefault(use.person, []).append(use)
    return [
        PersonCard(
            person=sanitize_text(person),
            clients=[sanitize_text(use.client) for use in uses if use.client],
            calls=sum(use.calls for use in uses),
            failures=sum(use.failures for use in uses),
            first=to_iso_time(min(use.first_at for use in uses)),
            last=to_iso_time(max(use.last_at for use in uses)),
        )
        for person, uses in by_person.items()
    ]
