"""Identity providers in the configuration: one or a list, checked when it is read."""

from pathlib import Path
from typing import Any

import pytest

from portico.config import Config
from portico.config_file.loader import load
from portico.config_file.mask import mask_config
from portico.config_file.secret_values import collect_secret_values
from portico.errors import ConfigError

ISSUER = {"issuer": "https://id.example", "audience": "https://portico.example/mcp"}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "http elsewhere": ({"issuer": "http://id.example"}, "must be https"),
    "no URL": ({"issuer": "id.example"}, "write a whole URL"),
    "a fragment": ({"issuer": "https://id.example/#x"}, "fragment"),
    "a password": ({"issuer": "https://u:p@id.example"}, "password"),
    "a broken port": ({"issuer": "https://id.example:x"}, "no URL"),
    "keys by http": ({"jwks_uri": "http://id.example/jwks"}, "must be https"),
    "a shared secret": ({"algorithms": ["HS256"]}, "RS256"),
    "no signature": ({"algorithms": ["none"]}, "RS256"),
    "no algorithm": ({"algorithms": []}, "at least 1"),
    "no profile": ({"profiles": {"work": ["group:dev"]}}, "'work' that is none"),
    "no grant": ({"profiles": {"*": ["dev"]}}, "write group:NAME or scope:NAME"),
    "no scope": ({"required_scopes": "a b"}, "is no scope"),
    "no audience": ({"audience": []}, "set gateway.public_url, or its audience"),
    "an empty audience": ({"audience": " "}, "empty"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_issuer_that_could_not_be_trusted_is_refused(what: str) -> None:
    changes, reason = REFUSED[what]
    with pytest.raises(ValueError, match=reason):
        Config.model_validate({"auth": {**ISSUER, **changes}})


def test_an_issuer_is_named_once() -> None:
    with pytest.raises(ValueError, match="named twice"):
        Config.model_validate({"auth": [ISSUER, ISSUER]})


@pytest.mark.parametrize(
    "url", ["portico.example", "https://a b", "https://a.example/?x", "ftp://a"]
)
def test_a_public_address_is_one_that_clients_can_use(url: str) -> None:
    with pytest.raises(ValueError, match="write a whole URL"):
        Config.model_validate({"gateway": {"public_url": url}})


def test_one_issuer_is_written_without_a_list_and_its_mistakes_have_lines(tmp_path: Path) -> None:
    file = tmp_path / "portico.yaml"
    file.write_text("auth:\n  issuer: https://id.example\n  audience: 0123\n")
    assert [one.audience for one in load(file, environ={}).config.auth] == [("0123",)]
    file.write_text("auth:\n  issuer: https://id.example\n  audience: x\n  issuers: y\n")
    with pytest.raises(ConfigError, match=r"portico\.yaml:4.*there is no such key"):
        load(file, environ={})


def test_the_secret_of_introspection_is_shown_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "portico.yaml"
    file.write_text(
        "auth:\n- issuer: https://id.example\n  audience: x\n  introspection:\n"
        "    client_id: portico\n    client_secret: ${SECRET}\n"
    )
    config = load(file, environ={"SECRET": "plain words here"}).config
    assert "plain words" not in str(mask_config(config))
    assert "plain words" not in repr(config)
    assert "plain words here" in collect_secret_values(config)
