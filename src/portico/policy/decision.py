"""What was decided about a request, and by which rule. Pure."""

from dataclasses import dataclass

from portico.config.rules import Effect, MaskKind, RuleLimit

__all__ = ["ALLOWED", "Approval", "Decision", "Effect"]


@dataclass(frozen=True)
class Decision:
    effect: Effect
    rule: str = "default"
    """The rule that decided: `rules[2]`, `default` where none fitted, `key` for what a read-only
    key does not allow."""
    say: str = ""
    """The rule's own words for a caller that is denied or has to wait."""
    limit: RuleLimit | None = None
    """How much the caller may do by the rule."""
    mask: tuple[MaskKind, ...] = ()
    """What is replaced in what the server answers."""
    mask_arguments: tuple[MaskKind, ...] = ()
    """What is replaced in the arguments that it is sent."""


ALLOWED = Decision("allow")


@dataclass(frozen=True)
class Approval:
    """What a person decided about one call, or that nobody has yet."""

    id: str
    decided_by: str = ""
    """Id of the principal; empty: it is not decided."""
    decided_via: str = ""
    """`elicitation`, `rest`, `cli`."""
    reason: str = ""
    """What the person said of it."""
