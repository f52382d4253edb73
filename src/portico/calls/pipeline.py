"""The call pipeline: every tool call passes the middlewares listed here, in that order.

The result is the server's object unchanged, except for notes in `_meta` (`results.result_meta`).
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Self, cast

from portico.calls.cache import ResultCache
from portico.calls.call import (
    DEFAULT_CONTEXT,
    Call,
    CallContext,
    CallMiddleware,
    Handler,
    ServerRequest,
    compose,
    make_call_id,
)
from portico.calls.call_recorder import CallRecorder
from portico.calls.definition_tracker import DefinitionTracker
from portico.calls.dispatcher import CallSettings, Dispatcher
from portico.calls.elicitation import resolve_elicitations
from portico.calls.held_definitions import HeldOffers, check_held_call
from portico.calls.result_masking import ResultMasking, ValueMasking
from portico.calls.rule_enforcement import RuleEnforcement
from portico.calls.rule_limits import RuleLimits
from portico.calls.running_task import RunningTask
from portico.calls.server_arguments import ServerArguments
from portico.calls.sign_in_elicitation import SignInElicitation
from portico.calls.task_follower import TaskFollower
from portico.calls.task_tickets import TaskTickets
from portico.calls.validation import prepare_arguments
from portico.catalog.catalog import Catalog
from portico.catalog.listing_sync import ServerSync
from portico.catalog.tool import Tool
from portico.config import BackendConfig
from portico.events import CatalogChanged, TokensRefused, ToolsFound, ToolsShown
from portico.policy.decision import Decision
from portico.results.learned_shapes import LearnedShapes
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import TaskRow
from portico.upstream.backend import Raw
from portico.upstream.lifecycle.supervisor import Upstream

__all__ = ["DEFAULT_CONTEXT", "CallContext", "CallPipeline", "CallSettings"]


class CallPipeline:
    """Runs tool calls and other requests to servers."""

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        settings: CallSettings,
        recorder: CallRecorder,
        *,
        cache: ResultCache | None = None,
        shapes: LearnedShapes | None = None,
        definitions: DefinitionTracker | None = None,
        tickets: TaskTickets | None = None,
    ) -> None:
        """Compose the pipeline; without `definitions` no changed definition is noticed."""
        self.cache = cache if cache is not None else ResultCache({})
        self.shapes = shapes if shapes is not None else LearnedShapes()
        self.recorder = recorder
        self.record_refusal = recorder.record_refusal
        self._upstreams = upstreams
        self._definitions = definitions
        self.masking = ValueMasking()
        self.enforcement = RuleEnforcement(settings.rules, self.masking)
        self._rule_limits = RuleLimits()
        self._result_masking = ResultMasking(self.masking)
        self._server_arguments = ServerArguments(self.masking, settings.secrets)
        self._dispatcher = Dispatcher(upstreams, settings, self.shapes, definitions)
        self._sign_ins = SignInElicitation(upstreams)
        self.tasks = TaskFollower(self._dispatcher, self.masking)
        self.tickets = tickets if tickets is not None else TaskTickets()
        self._run_call = self._compose_call()
        rules = self.enforcement
        resume_middlewares: list[CallMiddleware[Call]] = [
            recorder.record_call,
            rules.check_tool,
            check_held_call,
            self._result_masking.mask_call,
            self._sign_ins.ask,
        ]
        self._resume_call = compose(resume_middlewares, self.tasks.resume)
        request_middlewares: list[CallMiddleware[ServerRequest]] = [
            recorder.record_request,
            self.enforcement.check_request,
        ]
        if definitions is not None:
            request_middlewares.append(HeldOffers(definitions.catalog).check_request)
        request_middlewares += [self._rule_limits.limit_request, self._result_masking.mask_request]
        self._run_request = compose(
            [*request_middlewares, self._sign_ins.ask, resolve_elicitations],
            self._dispatcher.send_request,
        )

    def _compose_call(self) -> Handler[Call]:
        middlewares: list[CallMiddleware[Call]] = [self.recorder.record_call]
        if self._definitions is not None:
            middlewares.append(self._definitions.check_definition)
        # The rules: the definition is the current one, and nothing was read from the cache or the
        # server yet. Whether the tool exists for its caller comes before what is said of its
        # arguments, and the decision after them, since they may be repaired.
        rules = self.enforcement
        middlewares += [rules.check_tool, check_held_call, prepare_arguments, rules.check_call]
        middlewares += [self._rule_limits.limit_call, self._result_masking.mask_call]
        if self.cache.is_enabled:
            middlewares.append(self.cache.get_or_call)
        middlewares += [
            self._sign_ins.ask,
            self.tasks.follow,
            self._dispatcher.limit,
            check_held_call,
            rules.check_again,
            self._server_arguments.translate,
            resolve_elicitations,
            self._dispatcher.retry,
        ]
        return compose(middlewares, self._dispatcher.send_and_check)

    @classmethod
    def create(
        cls,
        upstreams: Mapping[str, Upstream],
        settings: CallSettings,
        recorder: CallRecorder,
        catalog: Catalog,
        syncs: Mapping[str, ServerSync],
        store: GatewayStore,
    ) -> Self:
        """Create a gateway's pipeline, with its parts subscribed to the bus."""
        bus = recorder.bus
        definitions = DefinitionTracker(catalog, syncs)
        pipeline = cls(
            upstreams,
            settings,
            recorder,
            shapes=LearnedShapes(store=store),
            definitions=definitions,
            tickets=TaskTickets(store, lambda server: catalog.fingerprints.get(server, "")),
        )
        pipeline.configure(settings.servers)
        pipeline.enforcement.get_category = lambda address: catalog.snapshot.get_category(address)
        bus.subscribe(pipeline.cache.handle_event, CatalogChanged)
        bus.subscribe(definitions.handle_event, ToolsFound, ToolsShown, CatalogChanged)
        if recorder.audit is not None:
            bus.subscribe(recorder.audit.write_refused_tokens, TokensRefused)
        return pipeline

    def configure(self, servers: Mapping[str, BackendConfig], replaced: Iterable[str] = ()) -> None:
        """Apply new settings of the servers, and forget results of replaced servers.

        Calls queued at an unchanged limit stay queued.
        """
        for server in replaced:
            self.cache.invalidate(server)
        upstreams = self._upstreams.items()
        self.cache.configure(
            {name: server.cache for name, server in servers.items()},
            [name for name, upstream in upstreams if upstream.isolated],
            [name for name, upstream in upstreams if upstream.personal],
        )
        self._dispatcher.configure(servers)
        self._run_call = self._compose_call()

    async def close(self) -> None:
        """Leave the tasks of servers to them; calls that wait for one get their tickets."""
        self.tasks.is_closing = True
        await self.tickets.close()
        await self.tasks.close()

    def call(
        self, tool: Tool, arguments: Any, context: CallContext = DEFAULT_CONTEXT
    ) -> Coroutine[Any, Any, Raw]:
        """Run a tool and return its raw result.

        Raises InvalidArguments, DefinitionChanged, BackendUnavailable (and its kinds), RemoteError.
        """
        return self._run_call(
            Call(
                tool=tool,
                arguments=arguments,
                context=context,
                server=tool.server,
                initial_hash=tool.hash,
                params=context.extra,
                spent_s=context.queued_s,
                id=context.call_id or make_call_id(context.run_id),
            )
        )

    def resume(self, tool: Tool, row: TaskRow, context: CallContext) -> Coroutine[Any, Any, Raw]:
        """Return the raw result of a call whose task an earlier process began; nothing is called.

        Raises what `call` raises. Whether the tool is there for its caller is decided again, what
        is masked was decided then.
        """
        call = Call(
            tool=tool,
            arguments={},
            context=context,
            server=tool.server,
            initial_hash=tool.hash,
            params={},
            id=row.call_id,
            is_validated=True,
            resumed_task=row.task_id,
        )
        call.decision = Decision("allow", row.rule, mask=cast("Any", tuple(row.mask.split())))
        return self._resume_call(call)

    async def send_about_task(
        self,
        task: RunningTask,
        method: str,
        context: CallContext,
        send: Callable[[], Awaitable[None]],
    ) -> None:
        """Do what a caller wants of the server that works at its task, and record it; the rules
        were asked when the task was looked up."""
        call = task.call

        async def run(_: ServerRequest) -> Raw:
            await send()
            return {}

        params: Raw = {"name": call.tool.upstream_name}
        request = ServerRequest(server=call.server, method=method, params=params, context=context)
        await self.recorder.record_request(request, run)

    def request(
        self, server: str, method: str, params: Raw | None, context: CallContext = DEFAULT_CONTEXT
    ) -> Coroutine[Any, Any, Raw]:
        """Send any other request to a server: resources, prompts, completion, unlisted tools."""
        return self._run_request(
            ServerRequest(server=server, method=method, params=params, context=context)
        )
