"""What a rule would change, before it is written: for how many tools, and for whom. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from portico.callers import Caller
from portico.policy.rules import RuleSet
from portico.policy.target import Target

_VERBS = {"allow": "Allows", "ask": "Asks a person about each call of", "deny": "Denies"}


@dataclass(frozen=True)
class RuleEffect:
    sentence: str
    tools: int
    """Tools that the rule is about."""
    total: int
    hidden_from_you: int
    """Tools that the person who adds it sees now, and would not."""
    is_dangerous: bool
    """Whether it hides every tool from everybody, or tools from the person who adds it."""


def compute_rule_effect(
    before: RuleSet,
    after: RuleSet,
    position: int,
    callers: Sequence[str],
    caller: Caller,
    targets: Sequence[Target],
) -> RuleEffect:
    """Compare the rules with those that have one more, at a position. `callers` are whom that one
    is for, `caller` is who adds it, `targets` are all tools."""
    rule = after.rules[position]
    concerned = sum(rule.may_concern(one.server, "tool") and rule.concerns(one) for one in targets)
    old = before.select_for(caller)
    new = after.select_for(caller)
    hidden = sum(old.can_see(one) and not new.can_see(one) for one in targets)
    is_for_all = "everyone" in callers
    whom = "everybody" if is_for_all else ", ".join(callers[:5])
    if len(callers) > 5:
        whom += f" and {len(callers) - 5} more"
    if concerned == len(targets):
        what = f"all {len(targets)} tools"
    else:
        what = f"{concerned} of {len(targets)} tools"
    effect = rule.decision.effect
    preposition = "to" if effect != "ask" else "for"
    you = ", you included" if rule.is_for(caller) else ", not you"
    condition = "" if rule.is_final else ", where the arguments fit `when`"
    sentence = f"{_VERBS[effect]} {what} {preposition} {whom}{you}{condition}."
    if hidden:
        sentence += f" {hidden} tools that you see now would not exist for you."
    hides_all = rule.hides and rule.is_final and is_for_all and concerned == len(targets) > 0
    return RuleEffect(sentence, concerned, len(targets), hidden, hides_all or hidden > 0)
