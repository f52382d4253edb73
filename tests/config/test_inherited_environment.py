"""A server gets the default variables, those that `inherit_env` selects, and its own `env`."""

import pytest

from portico.config import Config
from portico.config.inherited_environment import (
    CERTIFICATE_VARIABLES,
    DEFAULT_VARIABLES,
    PROXY_VARIABLES,
    build_environment,
    drop_unfilled,
    list_withheld,
    select_inherited,
)
from portico.config_file.mask import SECRET_NAME

SHELL = {
    "PATH": "/usr/bin",
    "SSL_CERT_FILE": "/etc/ca.pem",
    "https_proxy": "http://proxy:3128",
    "AWS_PROFILE": "work",
    "AWS_REGION": "eu-1",
    "GITHUB_TOKEN": "s3cret-value",
    "PORTICO_TOKEN": "s3cret-of-the-gateway",
}


def test_certificates_and_proxies_are_passed_on_and_credentials_are_not() -> None:
    given = build_environment(SHELL, {})
    assert set(given) == {"PATH", "SSL_CERT_FILE", "https_proxy"}
    assert {"NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE"} <= {
        *CERTIFICATE_VARIABLES
    }
    assert {"NO_PROXY", "no_proxy", "ALL_PROXY", "HTTP_PROXY"} <= {*PROXY_VARIABLES}


def test_no_default_variable_is_named_like_a_secret() -> None:
    assert [name for name in DEFAULT_VARIABLES if SECRET_NAME.search(name)] == []


@pytest.mark.parametrize(
    ("inherit_env", "selected"),
    [
        (("AWS_PROFILE", "ABSENT"), {"AWS_PROFILE"}),
        (("AWS_*",), {"AWS_PROFILE", "AWS_REGION"}),
        (("aws_*",), set[str]()),
        (("all",), set(SHELL) - {"PORTICO_TOKEN"}),
        (("*",), set(SHELL) - {"PORTICO_TOKEN"}),
        (("PORTICO_*",), set[str]()),
        (("PORTICO_TOKEN",), {"PORTICO_TOKEN"}),
    ],
)
def test_names_patterns_and_all_select_variables_but_not_the_gateways_own(
    inherit_env: tuple[str, ...], selected: set[str]
) -> None:
    assert set(select_inherited(SHELL, inherit_env)) == selected


def test_its_own_env_wins_over_what_is_inherited() -> None:
    given = build_environment(SHELL, {"AWS_REGION": "own", "PATH": "/own"}, ("AWS_*",))
    assert (given["AWS_REGION"], given["PATH"], given["AWS_PROFILE"]) == ("own", "/own", "work")


def test_what_is_set_and_not_passed_on_is_known() -> None:
    assert list_withheld(SHELL, ("AWS_*",)) == ["GITHUB_TOKEN", "PORTICO_TOKEN"]


def test_the_gateways_names_are_added_to_each_server_that_is_a_process() -> None:
    config = Config.model_validate(
        {
            "inherit_env": "AWS_*",
            "servers": {
                "local": {"command": "x", "inherit_env": ["KUBECONFIG"]},
                "plain": {"command": "y", "inherit_env": "all"},
                "remote": {"url": "https://example.com/mcp"},
            },
        }
    )
    assert {name: server.inherit_env for name, server in config.servers.items()} == {
        "local": ("KUBECONFIG", "AWS_*"),
        "plain": ("all", "AWS_*"),
        "remote": (),
    }


def test_a_reference_that_a_client_did_not_fill_in_is_not_a_value() -> None:
    environ = {"A": "$A", "B": "${B}", "C": "${env:C}", "D": "$A", "E": "$E/x", "F": ""}
    drop_unfilled(environ)
    assert environ == {"D": "$A", "E": "$E/x", "F": ""}
