"""Entities that presidio-analyzer finds, as kinds of `mask`. Skipped where it is not installed."""

import importlib.util
import json
import socket
from typing import Any

import pytest

from portico.calls.call import CallContext
from portico.config import Config
from portico.errors import ConfigError
from portico.testing import FakeBackend
from portico.upstream.backend import Raw
from tests.gateways import run_gateway
from tests.interaction.fake_servers import text, tool

HAS_PRESIDIO = importlib.util.find_spec("presidio_analyzer") is not None
needs_presidio = pytest.mark.skipif(
    not HAS_PRESIDIO, reason="needs presidio-analyzer: pip install 'portico-mcp[presidio]'"
)
FOUND = {
    "presidio:US_SSN": ("ssn 536-90-4399.", "ssn [us_ssn]."),
    "presidio:UK_NHS": ("NHS 943 476 5919", "NHS [uk_nhs]"),
    "presidio:CRYPTO": ("to 1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", "to [crypto]"),
    "presidio:IP_ADDRESS": ("from 10.0.0.1 on", "from [ip_address] on"),
    "presidio:PHONE_NUMBER": ("call +44 20 7946 0958 now", "call [phone_number] now"),
    "presidio:EMAIL_ADDRESS": ("to ana@example.org", "to [email_address]"),
}


async def call(said: str, *kinds: str) -> str:
    backend = FakeBackend([tool("find")])
    backend.on_call("find", lambda _: text(said))
    rules: list[Raw] = [{"may": "allow", "mask": list(kinds)}]
    config = Config.model_validate({"rules": rules})
    async with run_gateway({"crm": backend}, config) as gateway:
        found = gateway.catalog.snapshot.tools["crm.find"]
        return (await gateway.calls.call(found, {}, CallContext()))["content"][0]["text"]


@needs_presidio
@pytest.mark.parametrize("kind", FOUND)
async def test_what_presidio_finds_is_masked(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is fetched")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    said, wanted = FOUND[kind]
    assert await call(said, kind) == wanted


@needs_presidio
async def test_it_works_beside_the_own_kinds_and_in_large_results() -> None:
    line = "ana@example.org has 536-90-4399\n"
    answer = await call(line * 3_000, "email", "presidio:US_SSN")
    assert answer == "[email] has [us_ssn]\n" * 3_000


@needs_presidio
async def test_an_entity_that_needs_a_language_model_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match="without a language model"):
        await call("Ana lives here", "presidio:PERSON")


@pytest.mark.skipif(HAS_PRESIDIO, reason="presidio-analyzer is installed")
async def test_without_it_the_configuration_says_what_to_install() -> None:
    with pytest.raises(ConfigError) as caught:
        await call("x", "presidio:US_SSN")
    assert "portico-mcp[presidio]" in caught.value.advice


def test_the_kind_is_checked_by_its_form() -> None:
    for kind in ("presidio", "presidio:", "presidio:us_ssn", "other:US_SSN"):
        with pytest.raises(ValueError, match="mask"):
            Config.model_validate({"rules": [{"may": "allow", "mask": [kind]}]})
    assert json.dumps(Config.model_json_schema()).count("presidio") >= 1
