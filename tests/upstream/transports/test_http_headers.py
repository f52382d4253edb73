"""Addresses and headers, as they go out and as they are shown."""

import pytest
from mcp.shared.inbound import decode_header_value, encode_header_value

from portico.errors import BackendUnavailable
from portico.upstream.transports.http_headers import (
    encode_param_header,
    make_handshake_headers,
    parse_address,
    redact_url,
    render_request_head,
)


@pytest.mark.parametrize(
    "value",
    [
        "plain",
        "with space",
        "",
        " edge",
        "größe",
        "line\nbreak",
        "=?base64?eA==?=",
        "a" * 300,
        "\x7f",
    ],
)
def test_a_value_is_wrapped_as_the_specification_says(value: str):
    assert encode_param_header(value) == encode_header_value(value)
    assert decode_header_value(encode_param_header(value)) == value


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:secret@host:8443/mcp?key=secret#x", "https://host:8443/mcp?…"),
        ("http://[::1]:80/mcp", "http://[::1]:80/mcp"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("http://[oops/secret", "(a malformed url)"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str):
    assert redact_url(url) == shown


@pytest.mark.parametrize(
    "url", ["http://h:99999/", "http://[x/", "ftp://h/", "http:///mcp", "mcp", "http://h:0/"]
)
def test_an_impossible_address_is_refused_with_advice(url: str):
    with pytest.raises(BackendUnavailable) as caught:
        parse_address(url)
    assert "https://host:port/path" in caught.value.advice


def test_a_head_has_the_later_of_two_equal_headers_and_the_users_credentials():
    head = render_request_head(
        "POST", parse_address("http://me:pa%20ss@h:81/a b?x=1"), {"ACCEPT": "no"}, {"accept": "yes"}
    )
    assert head.split(b"\r\n") == [
        b"POST /a%20b?x=1 HTTP/1.1",
        b"host: h:81",
        b"authorization: Basic bWU6cGEgc3M=",
        b"accept: yes",
        b"",
    ]


@pytest.mark.parametrize(
    ("version", "sent"),
    [
        ("2024-11-05", None),
        ("2025-03-26", None),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ],
)
def test_the_version_header_is_sent_from_the_version_that_knows_it(version: str, sent: str | None):
    assert make_handshake_headers(version, None).get("mcp-protocol-version") == sent
