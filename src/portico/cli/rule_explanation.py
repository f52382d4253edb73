"""What the rules make of a request, as commands say it: which rule decides, and which came close.

As JSON: `{"target", "may", "rule", "say", "mask", "mask_arguments", "seen", "near": [{"rule",
"may", "why"}]}`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from portico.callers import Caller
from portico.catalog.rule_targets import find_target
from portico.catalog.tool import sanitize_text
from portico.gateway import GatewayRuntime
from portico.policy.explanation import Explanation, describe_near, explain, to_data
from portico.policy.target import Target


@dataclass(frozen=True)
class RuleExplanation:
    target: Target
    explanation: Explanation

    def to_data(self) -> Mapping[str, Any]:
        return {"target": self.target.address, **to_data(self.explanation)}

    def to_lines(self) -> list[str]:
        decision = self.explanation.decision
        said = f": {decision.say}" if decision.say else ""
        lines = [f"{decision.effect}, by {decision.rule}{said}"]
        for what, kinds in (("its answer", decision.mask), ("arguments", decision.mask_arguments)):
            if kinds:
                lines.append(f"  masks in {what}: {', '.join(kinds)}")
        if not self.explanation.is_seen:
            lines.append(f"{sanitize_text(self.target.address)} does not exist for this caller.")
        for near in self.explanation.near:
            why = describe_near(near)
            lines.append(f"  {near.decision.rule} ({near.decision.effect}): {why}")
        return lines


def explain_request(
    gateway: GatewayRuntime,
    profile: str | None,
    caller: Caller,
    name: str,
    parse: Callable[[Any], Any],
) -> RuleExplanation:
    """Explain what the rules make of what a name is about; `parse` makes the arguments of a schema.

    Raises InvalidArguments and UnknownName.
    """
    target, schema = find_target(gateway.get_view(profile).snapshot, name)
    arguments = parse(schema)
    if target.kind == "resource":
        arguments = {"uri": target.name}
    rules = gateway.calls.enforcement.rules
    return RuleExplanation(target, explain(rules, caller, target, arguments))
