"""Rules in the pipeline: nothing is sent to a server that they do not allow.

A call passes three middlewares: one before anything is said of its arguments, one with the
arguments as they will be sent, and one that decides again where the definition was replaced while
the call waited.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast

from portico.callers import Caller
from portico.calls.approval_request import ApprovedRounds
from portico.calls.call import Call, Handler, ServerRequest
from portico.calls.presidio_recognizers import check_kinds
from portico.calls.result_masking import ValueMasking
from portico.catalog.rule_filter import make_tool_target
from portico.catalog.schema_validator import compile_condition
from portico.catalog.tool import Tool, quote_text
from portico.config import Config
from portico.errors import RESOURCE_NOT_FOUND, ConfigError, PermissionDenied, UnknownName
from portico.policy.approver import Approver, NoApprover
from portico.policy.decision import Decision
from portico.policy.rules import KEY_RULE, NO_RULES, CallerRules, RuleSet, compile_rules
from portico.policy.target import Target
from portico.results.result_meta import REPAIRED
from portico.upstream.backend import Raw

_ALWAYS_ALLOWED = frozenset({"logging/setLevel", "ping", "resources/unsubscribe"})
"""Requests that tell a server nothing, and get nothing of it."""
_RESOURCE_METHODS = frozenset({"resources/read", "resources/subscribe"})
_ADVICE = "Ask the person who keeps the rules of this gateway."
_KEY_ADVICE = "Use a tool that only reads, or ask for another key."


def build_rules(config: Config) -> RuleSet:
    """Compile the rules of a configuration; raises ConfigError."""
    check_kinds(kind for rule in config.rules for kind in (*rule.mask, *rule.mask_arguments))
    try:
        return compile_rules(config.rules, config.default, compile_condition)
    except ValueError as error:
        raise ConfigError(
            str(error),
            advice="`when` maps each argument to a JSON Schema, a value or a list.",
            key="rules",
        ) from None


def make_refusal(target: Target, decision: Decision) -> PermissionDenied:
    """Return the error for a request that is denied, and may be known to exist."""
    reason = decision.say or f"{decision.rule} of this gateway's rules denies it"
    if decision.rule == KEY_RULE:
        return PermissionDenied(f"{target.address}: {reason}", advice=_KEY_ADVICE)
    return PermissionDenied(
        f"you may not use {target.address} in this way: {reason}",
        advice="" if decision.say else _ADVICE,
    )


class RuleEnforcement:
    """Middlewares that ask the rules; `rules` and `approver` may be replaced at any time."""

    def __init__(self, rules: RuleSet = NO_RULES, masking: ValueMasking | None = None) -> None:
        self.rules = rules
        self.masking = masking or ValueMasking()
        self.approver: Approver = NoApprover()
        """Asks a person where a rule says `ask`."""
        self._rounds = ApprovedRounds()
        self.get_category: Callable[[str], str] = lambda address: ""
        """Returns the category of a tool by its address."""

    def make_target(self, tool: Tool) -> Target:
        """Return a tool as the rules see it."""
        rules = self.rules
        category = self.get_category(tool.address) if rules.reads_categories else ""
        return make_tool_target(tool, category)

    # --- calls

    def check_tool(self, call: Call, /, call_next: Handler[Call]) -> Coroutine[Any, Any, Raw]:
        """Middleware: raises UnknownName for a tool that does not exist for its caller, and
        PermissionDenied for one that is denied whatever the arguments."""
        if (denied := self._find_denial(call.tool, call.context.caller)) is not None:
            call.decision = denied
            self.check_caller(call.tool, call.context.caller)
        return call_next(call)

    def check_caller(self, tool: Tool, caller: Caller) -> None:
        """Raise UnknownName for a tool that does not exist for a caller, and PermissionDenied for
        one that is denied whatever the arguments."""
        if (denied := self._find_denial(tool, caller)) is not None:
            own = self.rules.select_for(caller)
            raise _explain_denial(own, self.make_target(tool), denied)

    def _find_denial(self, tool: Tool, caller: Caller) -> Decision | None:
        own = self.rules.select_for(caller)
        if own.allows_all:
            return None
        decision = own.decide_without_arguments(self.make_target(tool))
        return decision if decision is not None and decision.effect == "deny" else None

    def check_call(self, call: Call, /, call_next: Handler[Call]) -> Coroutine[Any, Any, Raw]:
        """Middleware: decides with the arguments that will be sent; waits for an approval where a
        rule asks. Raises PermissionDenied."""
        own = self.rules.select_for(call.context.caller)
        if own.allows_all:
            return call_next(call)
        decision = own.decide(self.make_target(call.tool), call.rule_arguments)
        if decision.mask_arguments and decision.effect != "deny":
            return self._mask_and_follow(call, own, decision, call_next)
        return self._follow(call, own, decision, call_next)

    def _follow(
        self, call: Call, own: CallerRules, decision: Decision, call_next: Handler[Call]
    ) -> Coroutine[Any, Any, Raw]:
        call.decision = decision
        call.decided_hash = call.tool.hash
        if decision.effect == "allow":
            return call_next(call)
        if decision.effect == "ask":
            return self._ask(call, decision, call_next)
        raise _explain_denial(own, self.make_target(call.tool), decision)

    async def _mask_and_follow(
        self, call: Call, own: CallerRules, decision: Decision, call_next: Handler[Call]
    ) -> Raw:
        """Mask the arguments that will be sent. Rules have looked at what was meant, and a person
        approves what is sent."""
        unmasked = call.rule_arguments
        masked = await self.masking.mask(unmasked, decision.mask_arguments)
        if masked != unmasked:
            call.unmasked_arguments = unmasked
            call.arguments = masked
            names = ", ".join(name for name in masked if masked[name] != unmasked.get(name))
            note = f"masked by {decision.rule}, as the rules here say: {names}"
            call.marks[REPAIRED] = [*call.marks.get(REPAIRED, ()), note]
        return await self._follow(call, own, decision, call_next)

    def check_again(self, call: Call, /, call_next: Handler[Call]) -> Coroutine[Any, Any, Raw]:
        """Middleware: decides again if the definition was replaced since."""
        if call.decided_hash and call.decided_hash != call.tool.hash:
            return self.check_call(call, call_next)
        return call_next(call)

    async def _ask(self, call: Call, decision: Decision, call_next: Handler[Call]) -> Raw:
        call.is_validated = False
        if not self._rounds.take(call):
            await self.approver.approve(call, decision)
        # The rules may be others since: what they deny now is not sent.
        own = self.rules.select_for(call.context.caller)
        target = self.make_target(call.tool)
        current = own.decide(target, call.rule_arguments)
        if current.effect == "deny":
            call.decision = current
            raise _explain_denial(own, target, current)
        call.is_validated = True
        call.has_waited = True
        result = await call_next(call)
        self._rounds.remember(call, result)
        return result

    # --- other requests

    def check_request(
        self, request: ServerRequest, /, call_next: Handler[ServerRequest]
    ) -> Coroutine[Any, Any, Raw]:
        """Middleware: the same for resources, prompts, completion, tools that a server does not
        list, and its own methods."""
        own = self.rules.select_for(request.context.caller)
        if own.allows_all or request.method in _ALWAYS_ALLOWED:
            return call_next(request)
        target = make_request_target(request)
        if request.method == "completion/complete":
            # Nothing is run: it is for callers who may use the prompt or resource with some values.
            if own.may_use(target):
                return call_next(request)
            request.decision = own.decide(target, {})
            raise _explain_denial(own, target, request.decision)
        decision = own.decide(target, _get_request_arguments(request))
        request.decision = decision
        if decision.effect == "deny":
            raise _explain_denial(own, target, decision)
        if decision.effect == "ask" or decision.mask_arguments:
            return self._prepare_request(request, decision, call_next)
        return call_next(request)

    async def _prepare_request(
        self, request: ServerRequest, decision: Decision, call_next: Handler[ServerRequest]
    ) -> Raw:
        """Mask the arguments of a request, and wait for an approval, as far as its rule says."""
        params = request.params or {}
        if decision.mask_arguments and "arguments" in params:
            masked = await self.masking.mask(params["arguments"], decision.mask_arguments)
            request.params = {**params, "arguments": masked}
        if decision.effect == "ask":
            await self.approver.approve(request, decision)
        return await call_next(request)


def make_request_target(request: ServerRequest) -> Target:
    """Return what a request to a server is about."""
    params = request.params or {}
    method = request.method
    reference = params.get("ref") if method == "completion/complete" else None
    if isinstance(reference, Mapping):
        known = cast("Mapping[str, Any]", reference)
        if known.get("type") == "ref/prompt":
            return Target("prompt", request.server, str(known.get("name")))
        return Target("resource", request.server, str(known.get("uri")))
    if method in _RESOURCE_METHODS:
        return Target("resource", request.server, str(params.get("uri")))
    if method == "prompts/get":
        return Target("prompt", request.server, str(params.get("name")))
    if method == "tools/call":
        # Nothing is known of a tool that its server does not list.
        return Target("tool", request.server, str(params.get("name")), is_destructive=True)
    return Target("server", request.server, method)


def _get_request_arguments(request: ServerRequest) -> Any:
    params = request.params or {}
    if request.method in _RESOURCE_METHODS:
        return {"uri": params.get("uri")}
    return params.get("arguments") or {}


def _explain_denial(own: CallerRules, target: Target, decision: Decision) -> Exception:
    if own.can_see(target):
        return make_refusal(target, decision)
    return _make_unknown(target)


def _make_unknown(target: Target) -> Exception:
    """Return the error of a name that does not exist; views say it with the nearest names."""
    if target.kind == "resource":
        message = f"Resource not found: {quote_text(target.name)}"
        error = UnknownName(message)
        error.code = RESOURCE_NOT_FOUND
        return error
    what = {"tool": "tool", "prompt": "prompt", "server": "method"}[target.kind]
    name = target.name if target.kind == "server" else target.address
    return UnknownName(
        f"there is no {what} {quote_text(name)} here", advice="Use search_tools to find one."
    )
