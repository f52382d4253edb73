"""A real server that starts slowly gets both handshakes, and may accept both."""

from __future__ import annotations

import sys
from pathlib import Path

from portico.config import Config
from portico.testing import connect, gateway_over
from portico.upstream.protocol.handshake import PROBE_TIMEOUT_S

SERVER = Path(__file__).with_name("slow_dual_server.py")


async def test_a_slow_server_that_accepts_both_handshakes_answers_in_the_detected_era() -> None:
    command = {"command": sys.executable, "args": [str(SERVER), str(PROBE_TIMEOUT_S + 0.5)]}
    config = Config.model_validate({"servers": {"dual": command}})
    async with gateway_over(config=config) as gateway, connect(gateway) as client:
        (status,) = gateway.list_statuses()
        assert status.initialize_info is not None
        answer = await client.call_tool("call_tool", {"name": "dual.era"})
        assert answer.model_dump()["content"][0]["text"] == status.initialize_info.era == "modern"
