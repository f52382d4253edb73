"""One compiled rule, and rules by the servers and names that they can concern. Pure."""

from collections.abc import Sequence
from typing import Any

from portico.callers import Caller
from portico.config.rules import Rule
from portico.policy.conditions import Condition
from portico.policy.decision import Decision
from portico.policy.name_index import NameHints, NameIndex, find_hints
from portico.policy.patterns import AddressPattern, CallerPattern, NamePattern
from portico.policy.target import Target, TargetKind

OFFERED_KINDS: tuple[TargetKind, ...] = ("tool", "resource", "prompt")


class CompiledRule:
    """One rule, ready to be compared with requests."""

    def __init__(self, rule: Rule, name: str, condition: Condition | None) -> None:
        is_restrictive = rule.may != "allow"
        self.decision = Decision(
            rule.may, name, rule.say, rule.limit, rule.mask, rule.mask_arguments
        )
        self.condition = condition
        self.condition_names = tuple(rule.when)
        """The arguments that its condition names."""
        self.hides = rule.may == "deny" and not rule.visible
        """Whether what it denies does not exist for those whom it is for."""
        self.has_claims = any(one.startswith("client:") for one in rule.callers)
        self._is_restrictive = is_restrictive
        self._callers = [CallerPattern(one, is_restrictive=is_restrictive) for one in rule.callers]
        self._servers = [NamePattern(one, is_restrictive=is_restrictive) for one in rule.servers]
        self._categories = frozenset(rule.categories)
        self._read_only = rule.read_only
        self._destructive = rule.destructive
        self.reads_annotations = rule.read_only is not None or rule.destructive is not None
        self.reads_categories = bool(rule.categories)
        self._patterns: dict[TargetKind, list[AddressPattern] | None] = {}
        """By kind; None: all of that kind. A kind that the rule is not about is missing."""
        named = {"tool": rule.tools, "resource": rule.resources, "prompt": rule.prompts}
        is_about_tools = self.reads_annotations or self.reads_categories
        names_any = any(globs is not None for globs in named.values())
        for kind in OFFERED_KINDS:
            globs = named[kind]
            if globs is not None:
                self._patterns[kind] = [
                    AddressPattern(one, is_restrictive=is_restrictive) for one in globs
                ]
            elif not names_any and (kind == "tool" or not is_about_tools):
                self._patterns[kind] = None
        if len(self._patterns) == len(OFFERED_KINDS) and not names_any:
            self._patterns["server"] = None

        self._hints: dict[TargetKind, NameHints | None] = {}
        self.is_universal = condition is None and not self._servers and "server" in self._patterns
        """Whether it decides everything, so that no rule after it does."""

    @property
    def server_hints(self) -> NameHints | None:
        """How the names of servers begin or end that it may concern; None: it may be any."""
        return find_hints(self._servers) if self._servers else None

    @property
    def is_final(self) -> bool:
        """Whether it decides whatever the arguments are."""
        return self.condition is None

    def is_for(self, caller: Caller) -> bool:
        return any(pattern.matches(caller) for pattern in self._callers)

    def may_concern(self, server: str, kind: TargetKind) -> bool:
        """Return whether it may concern something of this kind of a server."""
        if self._servers and not any(one.matches(server) for one in self._servers):
            return False
        if kind == "server" and self._is_restrictive:
            # What a method of a server does is not known: it may do what the rule is about.
            return any(self._has_pattern(one, server) for one in self._patterns)
        return kind in self._patterns and self._has_pattern(kind, server)

    def _has_pattern(self, kind: TargetKind, server: str) -> bool:
        patterns = self._patterns[kind]
        return patterns is None or any(one.may_concern(server) for one in patterns)

    def decides_all(self, server: str, kind: TargetKind) -> bool:
        """Return whether it decides everything of this kind of a server, whatever the arguments."""
        if not self.is_final or (
            kind == "tool" and (self.reads_annotations or self.reads_categories)
        ):
            return False
        patterns = self._patterns.get(kind, [])
        return patterns is None or any(one.matches_all_of(server) for one in patterns)

    def is_about(self, kind: TargetKind) -> bool:
        """Return whether it may concern anything of a kind."""
        return kind in self._patterns or (kind == "server" and self._is_restrictive)

    def list_servers(self, kind: TargetKind) -> set[str] | None:
        """Return the servers that it names, folded; empty: it is for all. None: that has to be
        found out for each server, by `may_concern`."""
        patterns = self._patterns.get(kind)
        if self._servers or kind == "server":
            return None
        named = {pattern.server for pattern in patterns or ()}
        if "" not in named:
            return named
        return set() if named == {""} else None

    def get_hints(self, kind: TargetKind) -> NameHints | None:
        """Return how names begin or end that it may concern; None where it may be any."""
        if kind not in self._hints:
            patterns = self._patterns.get(kind)
            has_names = bool(patterns) and kind in ("tool", "prompt")
            self._hints[kind] = find_hints(patterns or ()) if has_names else None
        return self._hints[kind]

    def concerns(self, target: Target) -> bool:
        """Return whether it concerns a target of a server that it may concern."""
        if target.kind == "server":
            return True
        if target.kind == "tool" and not self._has_attributes(target):
            return False
        patterns = self._patterns[target.kind]
        return patterns is None or any(one.matches(target) for one in patterns)

    def _has_attributes(self, target: Target) -> bool:
        return (
            (self._read_only is None or self._read_only == target.is_read_only)
            and (self._destructive is None or self._destructive == target.is_destructive)
            and (not self._categories or target.category in self._categories)
        )

    def is_met(self, arguments: Any) -> bool:
        """Return whether the arguments fit its condition.

        Where that cannot be found out, a rule that denies or asks is met, one that allows is not.
        """
        if self.condition is None:
            return True
        found = self.condition.check(arguments)
        return self._is_restrictive if found is None else found


class RuleCandidates:
    """Rules that may concern something of one kind of one server, in their order."""

    def __init__(
        self,
        rules: Sequence[CompiledRule],
        kind: TargetKind,
        shared: "RuleCandidates | None" = None,
    ) -> None:
        """`shared` are those of the rules that are for every server, indexed already."""
        self.rules = tuple(rules)
        self._shared = shared
        known = shared.rules if shared is not None else ()
        hints = {rule: rule.get_hints(kind) for rule in rules if rule not in known}
        always = {rule for rule, hint in hints.items() if hint is None}
        if shared is not None:
            always.update(shared.always)
        self.always = tuple(rule for rule in rules if rule in always)
        """Those that have to be compared with every name."""
        self._index = NameIndex(filter(None, hints.values()))

    def select(self, name: str) -> tuple[CompiledRule, ...]:
        """Return those that may concern a name."""
        return self.rules if self._may_match(name) else self.always

    def _may_match(self, name: str) -> bool:
        if self._index.may_match(name):
            return True
        return self._shared is not None and self._shared._may_match(name)


class RulesByServer:
    """The rules about one kind, by the servers that they can concern."""

    def __init__(self, rules: Sequence[CompiledRule], kind: TargetKind) -> None:
        self._kind: TargetKind = kind
        self._order = {rule: number for number, rule in enumerate(rules)}
        self._tested: list[CompiledRule] = []
        """Those that have to be compared with every server."""
        self._named: dict[str, list[CompiledRule]] = {}
        """Those that name their servers, by each of these."""
        shared: list[CompiledRule] = []
        for rule in rules:
            servers = rule.list_servers(kind)
            if servers is None:
                self._tested.append(rule)
            elif not servers:
                shared.append(rule)
            for server in servers or ():
                self._named.setdefault(server, []).append(rule)
        self._shared = RuleCandidates(shared, kind)
        hints = [rule.server_hints for rule in self._tested]
        self._tests_all = None in hints
        self._server_index = NameIndex(filter(None, hints))

    def find(self, server: str) -> RuleCandidates:
        own = list(self._named.get(server.casefold(), ()))
        if self._tests_all or self._server_index.may_match(server):
            own += (rule for rule in self._tested if rule.may_concern(server, self._kind))
        if not own:
            return self._shared
        rules = sorted({*self._shared.rules, *own}, key=self._order.__getitem__)
        return RuleCandidates(rules, self._kind, self._shared)
