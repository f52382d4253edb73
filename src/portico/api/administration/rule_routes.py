"""Routes of the rules: which there are, what they make of a call, and what somebody sees."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from portico.api.gateway_services import GatewayServices, RuleServices
from portico.api.json_body import describe_json_body, read_json_body
from portico.api.models import ApiModel, optional
from portico.api.params import NoParams
from portico.api.responses import InvalidRequest, make_uncached_response
from portico.api.tool_routes import NOT_FOUND_RESPONSE
from portico.callers import LOCAL_USER, PRINCIPAL_KEY, Caller
from portico.calls.rule_enforcement import build_rules
from portico.catalog.rule_filter import make_tool_target
from portico.catalog.rule_targets import count_targets, find_target, list_decisions
from portico.catalog.tool import sanitize_text
from portico.config.rules import Rule
from portico.errors import PorticoError
from portico.policy.explanation import explain, make_test_caller, to_data
from portico.policy.rule_effect import RuleEffect, compute_rule_effect

_BODY_RESPONSES: dict[int | str, dict[str, Any]] = {
    **NOT_FOUND_RESPONSE,
    413: {"description": "The body is too large."},
    415: {"description": "The body is not said to be JSON."},
}
Name = Annotated[str, Field(max_length=400)]


class RuleList(ApiModel):
    """The rules, in the order in which they are tried."""

    rules: list[dict[str, Any]] = Field(description="As the configuration has them.")
    default: str = Field(description="What holds where no rule fits.")
    approvers: list[str] = optional([], "Who may approve; left out: everybody with the right.")
    profiles: list[str] = optional([], "Names of profiles.")


class TestCaller(ApiModel):
    """Whom a test is for."""

    who: Name = Field(
        default="local",
        description="`local`, `token`, `key:NAME`, or a person: `SUBJECT`, or `ISSUER SUBJECT`.",
    )
    groups: list[Name] = Field(default=[], max_length=200)
    profile: Name = ""
    client: Name = Field(default="", description="What its client calls itself.")


class RuleTest(TestCaller):
    """A call that is not made."""

    target: str = Field(
        min_length=1,
        max_length=2_000,
        description="A tool, `resource:SERVER.URI` or `prompt:SERVER.NAME`.",
    )
    arguments: dict[str, Any] = Field(default={})


class NearRule(ApiModel):
    """A rule that is about the target, and does not decide."""

    rule: str
    may: str
    why: str


class RuleVerdict(ApiModel):
    """What the rules make of a call."""

    target: str
    may: str = Field(description="`allow`, `ask` or `deny`.")
    rule: str = Field(description="The rule that decides; `default` if none fits.")
    say: str = optional("", "What the caller is told.")
    mask: list[str] = optional([], "What is masked in the answer.")
    mask_arguments: list[str] = optional([], "What is masked in the arguments.")
    seen: bool = Field(description="Whether the target exists for the caller.")
    near: list[NearRule] = optional([], "Rules that are about it, and do not decide.")


class NewRule(ApiModel):
    """A rule that is not written yet."""

    rule: Rule
    position: int = Field(default=0, ge=0, le=100_000, description="Its place among the rules.")


class NewRuleEffect(ApiModel):
    """What a rule would change."""

    sentence: str
    tools: int = Field(description="Tools that it is about.")
    total: int = Field(description="All tools.")
    hidden_from_you: int = Field(description="Tools that the caller sees now, and would not.")
    dangerous: bool = Field(
        description="It hides every tool from everybody, or tools from the caller."
    )


class SeenRequest(TestCaller):
    """A page of what somebody sees."""

    offset: int = Field(default=0, ge=0, le=1_000_000)
    limit: int = Field(default=200, ge=1, le=1_000)
    text: Name = Field(default="", description="Only names that contain it.")


class SeenTarget(ApiModel):
    """Something that exists for a caller."""

    kind: str
    name: str
    may: str = Field(description="`allow`, `ask` or `deny`; `depends` if it does on the arguments.")
    rule: str


class SeenPage(ApiModel):
    """What somebody sees, and how much is hidden."""

    seen: list[SeenTarget]
    total: int
    hidden: int


def rule_routes(services: GatewayServices) -> APIRouter:
    """Build the routes `/rules`."""
    router = APIRouter(tags=["administration"])

    def get_rules() -> RuleServices:
        if services.rules is None:
            raise PorticoError("this gateway has no rules")
        return services.rules

    @router.get("/rules", response_model=RuleList, summary="The rules")
    async def list_rules(_: Annotated[NoParams, Query()]) -> Response:
        """The first that fits a request decides it."""
        config = services.get_config().config
        dumped = [rule.model_dump(by_alias=True, exclude_defaults=True) for rule in config.rules]
        return make_uncached_response(
            RuleList(
                rules=dumped,
                default=config.default,
                approvers=list(config.approvals.by),
                profiles=list(config.profiles),
            )
        )

    @router.post(
        "/rules/test",
        response_model=RuleVerdict,
        summary="Test a call",
        responses=_BODY_RESPONSES,
        openapi_extra=describe_json_body(RuleTest),
    )
    async def try_call(request: Request, _: Annotated[NoParams, Query()]) -> Response:
        """What a call would come to, which rule decides, and which came close. Nothing is
        called."""
        wanted = await read_json_body(request, RuleTest)
        rules = get_rules()
        services.get_config().config.resolve_profile(wanted.profile or None)
        target, _schema = find_target(rules.get_snapshot(wanted.profile, None), wanted.target)
        arguments: Any = wanted.arguments
        if target.kind == "resource":
            arguments = {"uri": target.name}
        explanation = explain(rules.get_rules(), _make_caller(wanted), target, arguments)
        verdict = {"target": sanitize_text(target.address), **to_data(explanation)}
        return make_uncached_response(RuleVerdict.model_validate(verdict))

    @router.post(
        "/rules/effect",
        response_model=NewRuleEffect,
        summary="What a new rule would change",
        responses=_BODY_RESPONSES,
        openapi_extra=describe_json_body(NewRule),
    )
    async def find_effect(request: Request, _: Annotated[NoParams, Query()]) -> Response:
        """For how many tools and for whom a rule would decide. Nothing is written."""
        wanted = await read_json_body(request, NewRule)
        config = services.get_config().config
        place = min(wanted.position, len(config.rules))
        changed = (*config.rules[:place], wanted.rule, *config.rules[place:])
        try:
            after = build_rules(config.model_copy(update={"rules": changed}))
        except PorticoError as error:
            raise InvalidRequest(error) from error
        snapshot = get_rules().get_snapshot("", None)
        caller = Caller(principal=request.scope.get(PRINCIPAL_KEY, LOCAL_USER))

        def compute() -> RuleEffect:
            targets = [
                make_tool_target(tool, snapshot.get_category(tool.address))
                for tool in snapshot.tools.values()
            ]
            before = build_rules(config)
            return compute_rule_effect(before, after, place, wanted.rule.callers, caller, targets)

        effect = await asyncio.to_thread(compute)
        return make_uncached_response(
            NewRuleEffect(
                sentence=sanitize_text(effect.sentence),
                tools=effect.tools,
                total=effect.total,
                hidden_from_you=effect.hidden_from_you,
                dangerous=effect.is_dangerous,
            )
        )

    @router.post(
        "/rules/seen",
        response_model=SeenPage,
        summary="What somebody sees",
        responses=_BODY_RESPONSES,
        openapi_extra=describe_json_body(SeenRequest),
    )
    async def list_seen(request: Request, _: Annotated[NoParams, Query()]) -> Response:
        """Tools, resources and prompts that exist for a caller, and what may be done with each."""
        wanted = await read_json_body(request, SeenRequest)
        rules = get_rules()
        services.get_config().config.resolve_profile(wanted.profile or None)
        caller = _make_caller(wanted)
        whole = rules.get_snapshot(wanted.profile, None)
        shown = rules.get_snapshot(wanted.profile, caller)
        own = rules.get_rules().select_for(caller)

        def build() -> SeenPage:
            found = [row for row in list_decisions(own, shown) if wanted.text in row.name]
            page = found[wanted.offset : wanted.offset + wanted.limit]
            return SeenPage(
                seen=[SeenTarget(**vars(row)) for row in page],
                total=len(found),
                hidden=count_targets(whole) - count_targets(shown),
            )

        return make_uncached_response(await asyncio.to_thread(build))

    return router


def _make_caller(wanted: TestCaller) -> Caller:
    return make_test_caller(wanted.who, tuple(wanted.groups), wanted.profile, wanted.client)
