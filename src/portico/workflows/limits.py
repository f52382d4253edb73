"""Limits of workflows. Cheap to import: depends on no other module of this package."""

from dataclasses import dataclass

MAX_STEPS = 50
MAX_PARALLEL = 8
MAX_ITEMS = 200
MAX_WALL_S = 600.0
MAX_HELD_BYTES = 128 * 1024**2
MAX_RUNS = 100
MAX_TOTAL_BYTES = 32 * 1024**2
RUN_TTL_S = 3_600.0


@dataclass(frozen=True)
class WorkflowLimits:
    """Limits of one gateway."""

    steps: int = MAX_STEPS
    parallel: int = MAX_PARALLEL
    """Concurrent calls of one run."""
    items: int = MAX_ITEMS
    """Elements of one `for_each`."""
    runs: int = MAX_RUNS
    total_bytes: int = MAX_TOTAL_BYTES
    ttl_s: float = RUN_TTL_S
    wall_s: float = MAX_WALL_S
    """Seconds per request; unfinished steps are cancelled and can be resumed."""
    held_bytes: int = MAX_HELD_BYTES
    """Approximate total size of the results of one run."""
