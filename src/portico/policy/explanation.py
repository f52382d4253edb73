"""Why a request is decided as it is: the rule that decides, and those that came close. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from portico.callers import KEY_ISSUER, LOCAL_USER, TOKEN_HOLDER, Caller, Principal
from portico.policy.compiled_rule import CompiledRule
from portico.policy.decision import Decision
from portico.policy.rules import RuleSet
from portico.policy.target import Target

ISSUER_OF_TESTS = "person"
"""Issuer of people who are named without one."""

Reason = Literal["for others", "arguments", "later"]


@dataclass(frozen=True)
class NonDecidingRule:
    """A rule that is about the target, and does not decide."""

    decision: Decision
    """What it would decide."""
    reason: Reason
    """`for others`: not for this caller; `arguments`: these do not fit its `when`; `later`: it
    fits, and one before it decided."""
    arguments: tuple[str, ...] = ()
    """The arguments that its `when` names."""


@dataclass(frozen=True)
class Explanation:
    decision: Decision
    is_seen: bool
    """Whether the caller sees the target at all."""
    near: tuple[NonDecidingRule, ...] = ()


def make_test_caller(
    who: str, groups: tuple[str, ...] = (), profile: str = "", client: str = ""
) -> Caller:
    """Return the caller that a text means: `local`, `token`, `key:NAME`, `person:SUBJECT`,
    `person:ISSUER SUBJECT`, or a person's name alone."""
    if who in ("local", "token"):
        principal = LOCAL_USER if who == "local" else TOKEN_HOLDER
    elif who.startswith("key:"):
        principal = Principal(KEY_ISSUER, who.removeprefix("key:"), groups=groups)
    else:
        issuer, space, subject = who.removeprefix("person:").rpartition(" ")
        principal = Principal(issuer if space else ISSUER_OF_TESTS, subject, groups=groups)
    return Caller(name=client, profile=profile, principal=principal)


def explain(rules: RuleSet, caller: Caller, target: Target, arguments: Any) -> Explanation:
    """Compare a request with every rule that is about its target."""
    own = rules.select_for(caller)
    decision = own.decide(target, arguments)
    near: list[NonDecidingRule] = []
    is_decided = False
    for rule in rules.rules:
        if not rule.may_concern(target.server, target.kind) or not rule.concerns(target):
            continue
        if rule.decision.rule == decision.rule:
            is_decided = True
            continue
        if (reason := _find_reason(rule, caller, arguments, is_decided=is_decided)) is not None:
            near.append(NonDecidingRule(rule.decision, reason, rule.condition_names))
    return Explanation(decision, own.can_see(target), tuple(near))


def _find_reason(
    rule: CompiledRule, caller: Caller, arguments: Any, *, is_decided: bool
) -> Reason | None:
    if not rule.is_for(caller):
        return "for others"
    if not rule.is_met(arguments):
        return "arguments"
    return "later" if is_decided else None


def describe_near(near: NonDecidingRule) -> str:
    """Return why a rule does not decide, in a few words."""
    if near.reason == "for others":
        return "is for others"
    if near.reason == "arguments":
        return f"the arguments do not fit its `when`: {', '.join(near.arguments)}"
    return "fits too, and comes later"


def to_data(explanation: Explanation) -> Mapping[str, Any]:
    """Return an explanation as JSON."""
    decision = explanation.decision
    return {
        "may": decision.effect,
        "rule": decision.rule,
        "say": decision.say,
        "mask": list(decision.mask),
        "mask_arguments": list(decision.mask_arguments),
        "seen": explanation.is_seen,
        "near": [
            {"rule": one.decision.rule, "may": one.decision.effect, "why": describe_near(one)}
            for one in explanation.near
        ],
    }
