"""Search for plans in a snapshot's own index."""

from collections.abc import Sequence

from portico.catalog.snapshot import Snapshot
from portico.workflows.planning.clause_search import FindTools
from portico.workflows.planning.planner import to_candidates
from portico.workflows.planning.tool_choice import PlanCandidate


def make_index_search(snapshot: Snapshot) -> FindTools:
    """Return a search of the index, without what use has taught."""
    allowed = snapshot.tools.__contains__ if snapshot.is_restricted else None

    async def find(words: str, limit: int) -> Sequence[PlanCandidate]:
        return to_candidates(snapshot.index.search(words, limit, allow=allowed))

    return find
