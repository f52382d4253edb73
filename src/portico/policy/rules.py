"""Rules: one predicate that says whether a caller may do something. Pure.

rules = compile_rules(config.rules, config.default, compile_condition)
own = rules.select_for(caller)       # cached by what tells callers apart
own.decide(Target("tool", "github", "delete_repo"), {"owner": "acme"})    # -> Decision
own.can_see(target)                  # may it be allowed with any arguments?
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from portico.callers import Caller
from portico.config.rules import Effect, Rule
from portico.policy.compiled_rule import (
    OFFERED_KINDS,
    CompiledRule,
    RuleCandidates,
    RulesByServer,
)
from portico.policy.conditions import Condition, build_schema
from portico.policy.decision import ALLOWED, Decision
from portico.policy.target import Target, TargetKind

MAX_CALLERS = 4_096
"""Callers whose rules are remembered; above it all are selected again."""
MAX_TARGETS = 16_384
"""Tools and prompts whose rules are remembered for one selection of rules."""
_MAX_NAME_CHARS = 400
"""A longer name is not remembered."""
KEY_RULE = "key"
DEFAULT_RULE = "default"

CompileCondition = Callable[[Mapping[str, Any]], Condition]
"""Compiles a JSON Schema; raises ValueError with the reason where it cannot be used."""


_READ_ONLY_KEY = CompiledRule(
    Rule.model_validate(
        {
            "read_only": False,
            "may": "deny",
            "visible": True,
            "say": "your key is read-only, and this is not known to be",
        }
    ),
    KEY_RULE,
    None,
)


class CallerRules:
    """The rules for one caller, in their order, and what holds where none fits."""

    def __init__(self, rules: Sequence[CompiledRule], default: Effect) -> None:
        self._rules = tuple(rules)
        self._default = ALLOWED if default == "allow" else Decision(default)
        self._by_kind: dict[TargetKind, RulesByServer] = {}
        self._by_server: dict[tuple[str, TargetKind], RuleCandidates] = {}
        self._by_target: dict[Target, tuple[CompiledRule, ...]] = {}
        self.allows_all = not self._rules and self._default is ALLOWED
        self._hides_rest = default == "deny" and not any(rule.is_universal for rule in rules)
        self.hides_nothing = not self._hides_rest and not any(rule.hides for rule in rules)
        """Whether a caller sees everything, whatever the target."""

    @property
    def rules(self) -> tuple[CompiledRule, ...]:
        return self._rules

    def decide(self, target: Target, arguments: Any) -> Decision:
        """Return what holds for a request with these arguments."""
        for rule in self.list_applicable(target):
            if rule.is_met(arguments):
                return rule.decision
        return self._default

    def decide_without_arguments(self, target: Target) -> Decision | None:
        """Return what holds whatever the arguments are; None where it depends on them."""
        rules = self.list_applicable(target)
        if not rules:
            return self._default
        return rules[0].decision if rules[0].is_final else None

    def can_see(self, target: Target) -> bool:
        """Return whether a target exists for the caller: it may be allowed with some arguments, or
        what denies it is visible."""
        for rule in self.list_applicable(target):
            if not rule.hides:
                return True
            if rule.is_final:
                return False
        return not self._hides_rest

    def may_use(self, target: Target) -> bool:
        """Return whether a target may be allowed, or asked about, with some arguments."""
        rules = self.list_applicable(target)
        if any(rule.decision.effect != "deny" for rule in rules):
            return True
        is_decided = bool(rules) and rules[-1].is_final
        return not is_decided and self._default.effect != "deny"

    def find_undecided(self, server: str, names: Iterable[str]) -> set[str] | None:
        """Return which tools of a server rules may concern by their names; None: perhaps all.

        The others are seen or not by the default.
        """
        candidates = self._find_candidates(server, "tool")
        if candidates.always:
            return None
        return {name for name in names if candidates.select(name)}

    @property
    def shows_rest(self) -> bool:
        """Whether what no rule concerns exists for the caller."""
        return not self._hides_rest

    def shows_all_of(self, server: str) -> bool:
        """Return whether everything of a server exists for the caller."""
        return all(self._shows_all(server, kind) for kind in OFFERED_KINDS)

    def _shows_all(self, server: str, kind: TargetKind) -> bool:
        for rule in self._find_candidates(server, kind).rules:
            if rule.hides:
                return False
            if rule.decides_all(server, kind):
                return True
        return not self._hides_rest

    def can_see_server(self, server: str) -> bool:
        """Return whether anything of a server may exist for the caller."""
        return any(self._can_see_any(server, kind) for kind in OFFERED_KINDS)

    def _can_see_any(self, server: str, kind: TargetKind) -> bool:
        for rule in self._find_candidates(server, kind).rules:
            if not rule.hides:
                return True
            if rule.decides_all(server, kind):
                return False
        return not self._hides_rest

    def list_applicable(self, target: Target) -> tuple[CompiledRule, ...]:
        """Return the rules that concern a target, up to the first that decides for certain."""
        known = self._by_target.get(target)
        if known is not None:
            return known
        found: list[CompiledRule] = []
        for rule in self._find_candidates(target.server, target.kind).select(target.name):
            if rule.concerns(target):
                found.append(rule)
                if rule.is_final:
                    break
        applicable = tuple(found)
        if target.kind != "resource" and len(target.name) <= _MAX_NAME_CHARS:
            if len(self._by_target) >= MAX_TARGETS:
                self._by_target.clear()
            self._by_target[target] = applicable
        return applicable

    def _find_candidates(self, server: str, kind: TargetKind) -> RuleCandidates:
        known = self._by_server.get((server, kind))
        if known is None:
            if len(self._by_server) >= MAX_TARGETS:
                self._by_server.clear()
            if kind not in self._by_kind:
                rules = [rule for rule in self._rules if rule.is_about(kind)]
                self._by_kind[kind] = RulesByServer(rules, kind)
            known = self._by_server[server, kind] = self._by_kind[kind].find(server)
        return known


class RuleSet:
    """All rules of a gateway."""

    def __init__(self, rules: Sequence[CompiledRule] = (), default: Effect = "allow") -> None:
        self._rules = tuple(rules)
        self._default: Effect = default
        self._has_claims = any(rule.has_claims for rule in rules)
        self.reads_annotations = any(rule.reads_annotations for rule in rules)
        self.reads_categories = any(rule.reads_categories for rule in rules)
        self._everyone = CallerRules((), default)
        self._by_caller: dict[tuple[object, ...], CallerRules] = {}
        self._by_rules: dict[tuple[CompiledRule, ...], CallerRules] = {}

    @property
    def rules(self) -> tuple[CompiledRule, ...]:
        return self._rules

    @property
    def is_empty(self) -> bool:
        """Whether everything is allowed, but for keys that are read-only."""
        return not self._rules and self._default == "allow"

    def select_for(self, caller: Caller) -> CallerRules:
        """Return the rules that can concern a caller; the same object for those with the same."""
        principal = caller.principal
        if not self._rules and not principal.is_read_only:
            return self._everyone
        key = (
            principal.id,
            principal.groups,
            principal.is_read_only,
            caller.profile,
            caller.name if self._has_claims else "",
        )
        known = self._by_caller.get(key)
        if known is None:
            known = self._by_caller[key] = self._select(caller)
        return known

    def _select(self, caller: Caller) -> CallerRules:
        if len(self._by_caller) >= MAX_CALLERS:
            self._by_caller.clear()
            self._by_rules.clear()
        own = (_READ_ONLY_KEY,) if caller.principal.is_read_only else ()
        rules = own
        for rule in self._rules:
            if rule.is_for(caller):
                rules = (*rules, rule)
                if rule.is_universal:
                    break
        found = self._by_rules.get(rules)
        if found is None:
            found = self._by_rules[rules] = CallerRules(rules, self._default)
        return found


NO_RULES = RuleSet()


def compile_rules(
    rules: Sequence[Rule], default: Effect, compile_condition: CompileCondition
) -> RuleSet:
    """Compile the rules of a configuration; raises ValueError, naming the rule."""
    compiled: list[CompiledRule] = []
    for number, rule in enumerate(rules):
        name = f"rules[{number}]"
        condition = None
        if rule.when:
            try:
                condition = compile_condition(
                    build_schema(rule.when, is_strict=rule.may == "allow")
                )
            except ValueError as error:
                raise ValueError(f"{name}.when: {error}") from None
        compiled.append(CompiledRule(rule, name, condition))
    return RuleSet(compiled, default)
