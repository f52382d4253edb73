"""A plan that worked, as a row. No SQL here: whoever only handles rows need not load a database."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A plan that ran to its end, and for what. Nothing that anybody wrote is in it: see
    `workflow.templates`."""

    id: str
    """The hash of its scope and steps."""
    scope: str
    """Who may be offered it."""
    intent: str
    """What the intent meant, as a vector in base64; empty where that was not worked out. Never its
    words."""
    words: str
    """The hashes of the intent's words, apart by spaces."""
    steps: str
    """The steps as JSON, as `run_workflow` takes them."""
    tools: str
    """A JSON object: the address of each tool → its hash when the plan ran."""
    runs: int
    """How often it worked; of a row that is to be added, how often more."""
    used_at: float
