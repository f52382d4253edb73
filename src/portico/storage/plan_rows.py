"""Row type of successful plans. Free of SQL, so that it loads no database."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A plan that ran to its end. Contains no user text: see `workflows.planning.templates`."""

    id: str
    """Hash of scope and steps."""
    scope: str
    """Scope that may be offered the plan."""
    intent: str
    """The intent as a base64 vector, empty if not computed; never its words."""
    words: str
    """Hashes of the intent's words, separated by spaces."""
    steps: str
    """Steps as JSON, as `run_workflow` takes them."""
    tools: str
    """JSON object: the address of each tool with its hash when the plan ran."""
    runs: int
    """Number of successful runs; of a row to be added, the increment."""
    used_at: float
