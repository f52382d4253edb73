"""What is recorded of a request."""

import json
from pathlib import Path

from portico.calls.call import CallContext, ServerRequest
from portico.calls.call_recorder import CallRecorder
from portico.config import AuditConfig
from portico.events import EventBus
from portico.observability.audit import AuditLog
from portico.upstream.backend import Raw


async def test_a_request_is_logged_with_the_parameters_that_its_client_sent(tmp_path: Path):
    audit = AuditLog.from_settings(AuditConfig(arguments="redacted"), tmp_path)
    assert audit is not None
    params = {"name": "greeting"}
    request = ServerRequest(server="s", method="prompts/get", params=params, context=CallContext())

    async def answer_second_round(request: ServerRequest) -> Raw:
        request.params = {**params, "inputResponses": {"a": {"secret": "x"}}}
        return {}

    await CallRecorder(EventBus(), audit).record_request(request, answer_second_round)
    audit.close()
    line = json.loads((tmp_path / "audit.jsonl").read_text())
    assert (line["method"], line["arguments"]) == ("prompts/get", params)
