"""`portico doctor` on whole set-ups: one with many planted mistakes, healthy ones, and ones that
cannot be read."""

import base64
import http.server
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from portico.cli.doctor.server_checks import guess_remedy
from portico.cli.exit import sanitize_server_text
from portico.demo import make_demo_servers as demo_servers
from tests.cli.conftest import EVERYTHING, CommandResult, Home
from tests.fixtures import broken_command

PASSWORD, TOKEN, ARGUMENT, FROM_FILE = (
    "hunter2-hunter2",
    "tok-9f8e7d6c5b4a",
    "argument-1a2b3c4d",
    "from-the-file-77",
)
NO_SCRIPTS = {"metatools": {"run_code": False, "run_workflow": False}}
POSIX_ONLY = pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX ones")


def _jwt(expires: int) -> str:
    parts = ({"alg": "HS256"}, {"exp": expires})
    return (
        ".".join(
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
            for part in parts
        )
        + ".c2ln"
    )


PLANTED = """
exposre: meta                                             # config.unknown_key
gateway: {host: 0.0.0.0, port: 0}                         # endpoint.no_token
watch: false                                              # reload.off
pins: [listing.nope, gone.tool]                           # pin.unknown, config.names_no_server
limits: {start_concurrency: 16}
metatools: {run_code: false, run_workflow: false}
database_url: mysql://someone@localhost/x                 # database.address
servers:
  misspelt: {command: npxx, args: [some-server]}          # command.missing
  words: {command: "npx -y some-server"}                  # command.missing, arguments in it
  plain: {command: ./server.sh, cwd: .}                   # command.not_executable
  windows: {command: cmd, args: [/c, npx, some-server]}   # command.windows_only
  script: {command: %(python)s, args: [missing.py]}       # command.script_missing
  nothing: {command: %(python)s}                          # command.no_script
  nowhere: {command: %(python)s, args: [-V], cwd: absent} # command.cwd_missing
  unset: {command: %(python)s, env: {A: "${PLANTED_UNSET}"}}   # variable.unset
  inherits: {command: %(python)s, args: [-c, ""], inherit_env: [PLANTED_ABSENT]}   # variable.not_inherited
  no_file: {command: %(python)s, env_file: absent.env}    # env_file.unreadable
  open_file: {recorded: listing.json, env_file: open.env} # env_file.readable
  empty: {recorded: listing.json, env: {GITHUB_TOKEN: ""}, tools: {deny: [zzz]}}   # credential.empty, rules
  unfilled: {recorded: listing.json, env: {API_KEY: YOUR_API_KEY}}   # credential.placeholder
  result: {recorded: listing.json, env: {PASSWORD: %(password)s}}   # secret.in_file
  flagged: {recorded: listing.json, args: [--api-key, %(argument)s]}   # secret.in_file
  expired: {url: "http://127.0.0.1:1/a", headers: {Authorization: "Bearer %(jwt)s"}}   # credential.expired
  bare: {url: "http://127.0.0.1:1/b", headers: {Authorization: %(token)s}}   # credential.no_scheme, unreachable
  refused: {url: "%(refusing)s/mcp", headers: {Authorization: "Bearer %(token)s"}}   # credential.refused
  module: {command: %(python)s, args: [-c, "import os; print(os.environ['PASSWORD']); import absent_module"],
           env: {PASSWORD: %(password)s}}                 # server.failed
  dies: {command: %(python)s, args: [-c, "import os, sys; sys.exit(os.environ['PASSWORD'])"],
         env: {PASSWORD: %(password)s}}                   # its last words are a secret
  hangs: {command: %(python)s, args: [-c, "import time; time.sleep(99)"], timeouts: {start_s: 1}}   # server.timeout
  again: {command: %(python)s, args: [-c, "import time; time.sleep(99)"], timeouts: {start_s: 1}}   # server.duplicate
  unknown: {command: %(python)s, args: [-c, ""], comand: x}   # config.unknown_key
  off: {command: nothing, disabled: true}                 # server.disabled
  listing: {recorded: listing.json, tools: {allow: ["*", none_*], rename: {absent: here}}}   # rules, tool.…
"""  # noqa: E501
LISTING = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "x"},
    },
    "tools": [
        {"name": "fine", "description": "Fine ⚠️.", "inputSchema": {"type": "object"}},
        {"name": "not a name!", "description": "x", "inputSchema": {"type": "object"}},
        {"name": "twice", "description": "x", "inputSchema": {"type": "object"}},
        {"name": "twice", "description": "x", "inputSchema": {"type": "object"}},
        {"name": "silent", "inputSchema": {"type": "object"}},
        {
            "name": "lost",
            "description": "x",
            "inputSchema": {"type": "object", "properties": {"a": {"$ref": "#/b"}}},
        },
        {
            "name": "wrong",
            "description": "x",
            "inputSchema": {"type": "object", "properties": {"a": {"type": "strin"}}},
        },
        {
            "name": "either",
            "description": "x",
            "inputSchema": {"type": "object", "anyOf": [{"required": ["a"]}]},
        },
        {"name": "hidden", "description": "see\u2066this", "inputSchema": {"type": "object"}},
    ],
}
EXPECTED = [
    ("config.unknown_key", "exposre"),
    ("config.unknown_key", "servers.unknown.comand"),
    ("endpoint.no_token", "gateway.host"),
    ("reload.off", "watch"),
    ("pin.unknown", "pins.0"),
    ("config.names_no_server", "pins.1"),
    ("database.address", "database_url"),
    ("command.missing", "servers.misspelt.command"),
    ("command.missing", "servers.words.command"),
    ("command.not_executable", "servers.plain.command"),
    ("command.windows_only", "servers.windows.command"),
    ("command.script_missing", "servers.script.args.0"),
    ("command.no_script", "servers.nothing.command"),
    ("command.cwd_missing", "servers.nowhere.cwd"),
    ("variable.unset", "servers.unset.env.A"),
    ("variable.not_inherited", "servers.inherits.inherit_env"),
    ("env_file.unreadable", "servers.no_file.env_file"),
    ("env_file.readable", "servers.open_file.env_file"),
    ("credential.empty", "servers.empty.env.GITHUB_TOKEN"),
    ("credential.placeholder", "servers.unfilled.env.API_KEY"),
    ("secret.in_file", "servers.result.env.PASSWORD"),
    ("secret.in_file", "servers.flagged.args.1"),
    ("secret.in_file", "servers.bare.headers.Authorization"),
    ("credential.expired", "servers.expired.headers.Authorization"),
    ("credential.no_scheme", "servers.bare.headers.Authorization"),
    ("credential.refused", "servers.refused.headers.Authorization"),
    ("server.unreachable", "servers.bare.url"),
    ("server.failed", "servers.module.command"),
    ("server.noise", "servers.module"),
    ("server.timeout", "servers.hangs.command"),
    ("server.duplicate", "servers.again"),
    ("server.disabled", "servers.off.disabled"),
    ("rules.match_nothing", "servers.listing.tools.allow.1"),
    ("rules.match_nothing", "servers.listing.tools.rename.absent"),
    ("rules.match_nothing", "servers.empty.tools.deny.0"),
    ("tool.name", "servers.listing"),
    ("tool.duplicate", "servers.listing"),
    ("tool.description_empty", "servers.listing"),
    ("tool.ref_unresolved", "servers.listing"),
    ("tool.schema_invalid", "servers.listing"),
    ("tool.schema_root", "servers.listing"),
    ("tool.hidden_characters", "servers.listing"),
]


class _Refusing(http.server.BaseHTTPRequestHandler):
    """Lets nobody in, and repeats the credentials it was given."""

    def do_POST(self) -> None:
        said = f"no: {self.headers.get('Authorization')}".encode()
        self.send_response(401)
        self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(10)


@pytest.fixture(scope="module")
def planted(
    tmp_path_factory: pytest.TempPathFactory, refusing: str
) -> tuple[CommandResult, CommandResult, Path]:
    """The set-up with the mistakes, examined as text and as JSON."""
    folder = tmp_path_factory.mktemp("planted")
    values = {
        "python": sys.executable, "password": PASSWORD, "argument": ARGUMENT, "token": TOKEN,
        "jwt": _jwt(1_000_000_000), "refusing": refusing,
    }  # fmt: skip
    (folder / "portico.yaml").write_text(PLANTED % values)
    (folder / "listing.json").write_text(json.dumps(LISTING))
    (folder / "server.sh").write_text("#!/bin/sh\n")
    (folder / "open.env").write_text(f"SERVICE_TOKEN={FROM_FILE}\n")
    (folder / "open.env").chmod(0o644)
    home = Home(folder, cast(Any, None))
    return home.spawn("doctor", "--json"), home.spawn("doctor", "--offline"), folder


def _ids(ran: CommandResult) -> set[str]:
    return {finding["id"] for finding in ran.data["findings"]}


@POSIX_ONLY
@pytest.mark.parametrize(("kind", "key"), EXPECTED, ids=[f"{kind}-{key}" for kind, key in EXPECTED])
def test_every_planted_mistake_is_found_with_its_place_and_remedy(
    planted: tuple[CommandResult, CommandResult, Path], kind: str, key: str
) -> None:
    result, _, folder = planted
    found = [one for one in result.data["findings"] if (one["id"], one["key"]) == (kind, key)]
    assert len(found) == 1, [(one["id"], one["key"]) for one in result.data["findings"]]
    assert found[0]["remedy"]
    lines = (folder / "portico.yaml").read_text().splitlines()
    name = key.split(".")[1] if key.startswith("servers.") else key.split(".")[0]
    assert found[0]["file"] == "portico.yaml"
    assert name in "\n".join(lines[found[0]["line"] - 2 : found[0]["line"]])


def test_a_broken_set_up_ends_with_a_code_that_says_so(
    planted: tuple[CommandResult, CommandResult, Path],
) -> None:
    result, _, _ = planted
    assert (result.code, result.data["ok"]) == (
        2,
        False,
    )  # the file has a key that Portico would refuse
    counted = [
        sum(one["severity"] == kind for one in result.data["findings"])
        for kind in ("broken", "warning", "note")
    ]
    assert counted == [result.data["broken"], result.data["warnings"], result.data["notes"]]
    assert "Traceback" not in result.err


def test_nothing_secret_is_shown(planted: tuple[CommandResult, CommandResult, Path]) -> None:
    for ran in planted[:2]:
        for secret in (PASSWORD, TOKEN, ARGUMENT, FROM_FILE, _jwt(1_000_000_000)):
            assert secret not in ran.out + ran.err


def test_the_worst_comes_first_and_each_finding_says_what_to_do(
    planted: tuple[CommandResult, CommandResult, Path],
) -> None:
    severities = [finding["severity"] for finding in planted[0].data["findings"]]
    assert severities == sorted(severities, key=("broken", "warning", "note").index)
    text = planted[1].out
    assert "Broken (" in text
    assert "command.missing · words · portico.yaml:11\n" in text
    assert "→ Put the arguments into args: command: npx, args: [-y, some-server].\n" in text
    assert text.rstrip().splitlines()[-1].startswith("Broken: ")


def test_offline_starts_no_server_and_still_sees_what_can_be_seen(
    planted: tuple[CommandResult, CommandResult, Path],
) -> None:
    text = planted[1].out
    assert "hangs: not asked" in text
    assert "server.timeout" not in text
    assert "credential.empty" in text
    assert "command.not_executable" in text


def test_servers_that_hang_hold_up_no_other(home: Home) -> None:
    hangs = {
        "command": sys.executable,
        "args": ["-c", "import time; time.sleep(99)"],
        "timeouts": {"start_s": 2},
    }
    many = {f"hangs{number}": {**hangs, "description": str(number)} for number in range(6)}
    home.write(
        {
            "gateway": {"port": 0},
            **NO_SCRIPTS,
            "limits": {"start_concurrency": 8},
            "servers": {**many, "good": EVERYTHING},
        }
    )
    result = home.run("doctor", "--json")
    states = {server["name"]: server["ok"] for server in result.data["servers"]}
    assert states == {**dict.fromkeys(many, False), "good": True}


def test_a_healthy_set_up_has_nothing_broken(home: Home) -> None:
    served = {name: {"functions": server.functions} for name, server in demo_servers().items()}
    home.write({"gateway": {"port": 0}, "servers": {**served, "everything": EVERYTHING}})
    result = home.run("doctor", "--json")
    assert (result.code, result.data["ok"], result.data["broken"]) == (0, True, 0), result.out
    everything = next(server for server in result.data["servers"] if server["name"] == "everything")
    assert everything["ok"]
    assert everything["tools"] > 0
    assert set(result.data["languages"].values()) == {"works"}
    directly = home.run("tokens", "--json").data["direct"]
    assert result.data["cost"]["full"] == directly["tokens"], "one figure for one thing"


def test_tools_that_a_rule_leaves_out_are_told_apart(home: Home) -> None:
    clock = {"functions": "portico.demo.clock", "tools": {"deny": ["now"]}}
    home.write({"gateway": {"port": 0}, **NO_SCRIPTS, "servers": {"clock": clock}})
    assert ", 5 of 6 tools" in home.run("doctor").out


def test_a_clash_of_names_names_the_server_whole(home: Home) -> None:
    clock = {"functions": "portico.demo.clock"}
    home.write({"gateway": {"port": 0}, **NO_SCRIPTS, "servers": {"a_b": clock, "a.b": clock}})
    result = home.run("doctor", "--json", "--offline")
    [clash] = [one for one in result.data["findings"] if one["id"] == "config.server_name"]
    assert clash["server"] == "a.b"


def test_equal_findings_are_one_and_a_level_leaves_lesser_ones_out(home: Home) -> None:
    gone = {"command": "no-such-program"}
    servers = {name: dict(gone) for name in ("one", "two", "three")}
    home.write({"gateway": {"port": 0}, **NO_SCRIPTS, "servers": servers})
    everything = home.run("doctor", "--offline").out
    assert "\ncommand.missing · one, two, three" in everything
    assert everything.count("command.missing") == 1
    worst = home.run("doctor", "--offline", "--level", "broken").out
    assert "command.missing" in worst
    assert "Warnings (" not in worst
    assert "Worth knowing (" not in worst


def test_the_remedy_fits_the_trouble_and_hints_stay_readable() -> None:
    off = "Error: connect ECONNREFUSED 127.0.0.1:5432"
    assert guess_remedy(["psycopg.OperationalError: connection refused"])[0] == "database"
    assert guess_remedy([off])[0] == "database"
    usage = [
        "Error: no context is set",
        "Usage:",
        "  --tls-cert string   Path to a TLS certificate",
    ]
    assert guess_remedy(usage) == ("", "")
    assert guess_remedy(["the server was ended by SIGKILL: killed"])[0] == "memory"
    for hint in ("API_KEY: not set", "Bearer token required", "token expired at noon"):
        assert sanitize_server_text(hint) == hint
    assert "s3cr3t9" not in sanitize_server_text("API_KEY: s3cr3t9 and Bearer s3cr3t9")


def test_the_demo_needs_no_configuration(home: Home) -> None:
    result = home.run("doctor", "--json", env={"PORTICO_PORT": "0"})
    assert result.code == 0
    assert "config.absent" in _ids(result)


def test_the_shape_of_the_json_is_fixed(home: Home) -> None:
    home.write(
        {"gateway": {"port": 0}, **NO_SCRIPTS, "servers": {"gone": {"command": "no-such-program"}}}
    )
    result = home.run("doctor", "--json")
    assert result.code == 1
    assert set(result.data) == {
        "ok", "broken", "warnings", "notes", "findings", "servers", "about", "containment",
        "database", "languages", "cost",
    }  # fmt: skip
    [finding] = [one for one in result.data["findings"] if one["severity"] == "broken"]
    assert finding == {
        "id": "command.missing",
        "severity": "broken",
        "message": "the command 'no-such-program' does not exist on PATH",
        "remedy": "Install it, or write its full path (`command -v` in your own shell shows it).",
        "server": "gone",
        "key": "servers.gone.command",
        "file": "portico.yaml",
        "line": 1,
        "details": [],
    }


def test_a_file_that_is_no_yaml_is_said_with_its_line(home: Home) -> None:
    (home.folder / "portico.yaml").write_text("servers:\n  a: [unclosed\n  b: {command: x}\n")
    result = home.run("doctor", "--json", env={"PORTICO_PORT": "0"})
    [finding] = [one for one in result.data["findings"] if one["id"] == "config.syntax"]
    assert (result.code, finding["severity"], finding["line"] > 0) == (2, "broken", True)


def test_a_file_that_is_not_there_is_said_with_the_nearest(home: Home) -> None:
    home.write({"servers": {}}, "portico.yaml")
    result = home.run("doctor", "--json", "--config", "porticoo.yaml", env={"PORTICO_PORT": "0"})
    [finding] = [one for one in result.data["findings"] if one["id"] == "config.unreadable"]
    assert result.code == 2
    assert "portico.yaml" in finding["remedy"]


def test_one_server_can_be_examined_alone(home: Home) -> None:
    home.write(
        {
            "servers": {
                "good": {"functions": "portico.demo.clock"},
                "gone": {"command": "no-such-program"},
            }
        }
    )
    good, gone = (
        home.run("doctor", "--json", "--server", "good"),
        home.run("doctor", "--json", "--server", "gone"),
    )
    assert (good.code, good.data["findings"], [one["name"] for one in good.data["servers"]]) == (
        0,
        [],
        ["good"],
    )
    assert (gone.code, _ids(gone)) == (1, {"command.missing"})
    wrong = home.run("doctor", "--server", "god")
    assert wrong.code == 1
    assert "Did you mean good?" in wrong.err


def test_servers_that_misbehave_are_named_with_what_they_do(home: Home) -> None:
    def server(name: str) -> dict[str, Any]:
        command, *args = broken_command(name)
        return {"command": command, "args": args, "timeouts": {"start_s": 20}}

    home.write({"gateway": {"port": 0}, "servers": {name: server(name) for name in (
        "garbage_stdout", "crash_on_start", "lies_about_resources", "ignores_stdin_close",
            "unknown_version"
    )}})  # fmt: skip
    result = home.run("doctor", "--json")
    found = {(one["server"], one["id"]) for one in result.data["findings"]}
    assert {
        ("garbage_stdout", "server.noise"),
        ("crash_on_start", "server.failed"),
        ("lies_about_resources", "server.declares_absent"),
        ("unknown_version", "server.version_unknown"),
    } <= found
    if os.name == "posix":
        assert ("ignores_stdin_close", "server.ignores_stdin") in found
