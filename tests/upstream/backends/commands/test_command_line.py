"""Command-line programs as tools: what they are given, how they end, and that nothing is left of
them."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from portico.config import BackendConfig, LimitsConfig
from portico.config.command_tool import CommandTool
from portico.errors import BackendTimeout, BackendUnavailable, RemoteError
from portico.upstream.backend import Connection, Raw, RequestOptions
from portico.upstream.backends import command_line as checking
from portico.upstream.backends.factory import make_backend
from portico.upstream.backends.program_run import (
    ProgramNotStarted,
    clean_output,
    explain_batch_refusal,
)
from portico.upstream.transports.process import ProcessGuard
from tests.upstream.loopback_server import TEST_TIMEOUT_S, RecordingListener

PYTHON = [sys.executable, "-I", "-S"]
ECHO_ARGUMENTS = [*PYTHON, str(Path(__file__).with_name("echo_arguments.py"))]

posix_only = pytest.mark.skipif(os.name != "posix", reason="uses programs and signals of POSIX")


def script(code: str, *words: str) -> list[str]:
    """A command that is a few lines of Python."""
    return [*PYTHON, "-c", code.replace("{", "{{").replace("}", "}}"), *words]


@asynccontextmanager
async def programs(
    commands: dict[str, Any], limits: LimitsConfig | None = None, **more: Any
) -> AsyncGenerator[Connection, None]:
    guard = ProcessGuard()
    backend = make_backend(
        "p", BackendConfig(commands=commands, **more), limits or LimitsConfig(), guard
    )
    connection = await backend.connect(RecordingListener())
    try:
        yield connection
    finally:
        await asyncio.wait_for(connection.close(), TEST_TIMEOUT_S)
        await asyncio.to_thread(guard.close)


async def call(
    connection: Connection, name: str, timeout: float = TEST_TIMEOUT_S, **arguments: Any
) -> Raw:
    return await connection.request(
        "tools/call", {"name": name, "arguments": arguments}, RequestOptions(timeout=timeout)
    )


async def words(
    command: Any, arguments: dict[str, Any], given: dict[str, Any], **more: Any
) -> list[str]:
    """What the program gets."""
    tool = {
        "command": [*ECHO_ARGUMENTS, *command],
        "arguments": arguments,
        "output": "json",
        **more,
    }
    async with programs({"it": tool}) as connection:
        result = await call(connection, "it", **given)
    assert not result.get("isError"), text(result)
    return result["structuredContent"]["words"]


async def refusal(command: Any, arguments: dict[str, Any], given: dict[str, Any]) -> str:
    async with programs(
        {"it": {"command": [*ECHO_ARGUMENTS, *command], "arguments": arguments}}
    ) as connection:
        result = await call(connection, "it", **given)
    assert result.get("isError")
    return text(result)


def text(result: Raw) -> str:
    return result["content"][0]["text"]


# --- words


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["log", "--max-count=10", "--"]),
        ({"count": 3, "path": "a b; c"}, ["log", "--max-count=3", "--", "a b; c"]),
        ({"path": "-x", "author": "-y"}, ["log", "--max-count=10", "--author=-y", "--", "-x"]),
        ({"author": "A B", "short": True}, ["log", "--max-count=10", "--author=A B", "-s", "--"]),
        ({"short": False, "path": ""}, ["log", "--max-count=10", "--", ""]),
        ({"file": ["a", "b c"]}, ["log", "--max-count=10", "-f", "a", "-f", "b c", "--"]),
        ({"file": [], "author": None}, ["log", "--max-count=10", "--"]),
        ({"count": 2.0}, ["log", "--max-count=2", "--"]),
    ],
)
async def test_each_argument_is_in_its_word_and_what_is_not_given_is_left_out(
    given: dict[str, Any], expected: list[str]
):
    arguments = {
        "count": {"type": "integer", "default": 10},
        "path": "string",
        "author": {"flag": "--author"},
        "short": {"type": "boolean", "flag": "-s"},
        "file": {"type": "array", "flag": "-f"},
    }
    assert await words(["log", "--max-count={count}", "--", "{path}"], arguments, given) == expected


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--a", ["--a=v w"]),
        ("--a=", ["--a=v w"]),
        ("--a {}", ["--a", "v w"]),
        ("-a", ["-a", "v w"]),
        ("-a{}", ["-av w"]),
        ("-D key={}", ["-D", "key=v w"]),
    ],
)
async def test_a_flag_says_how_its_value_follows(flag: str, expected: list[str]):
    assert await words([], {"a": {"flag": flag}}, {"a": "v w"}) == expected


async def test_an_array_repeats_its_word_and_braces_are_doubled():
    found = await words(
        ["--file={f}", "{{{n}}}", "{{}}"],
        {"f": "array", "n": "number"},
        {"f": ["a", "b"], "n": 0.5},
    )
    assert found == ["--file=a", "--file=b", "{0.5}", "{}"]


async def test_input_is_a_template_too_and_an_array_in_it_is_lines():
    tool = {
        "command": ECHO_ARGUMENTS,
        "arguments": {"x": "string", "y": "array"},
        "stdin": "<{x}>\n{y}",
        "output": "json",
    }
    async with programs({"it": tool}) as connection:
        result = await call(connection, "it", x="- $(id) \u2028", y=["1", "2"])
    assert result["structuredContent"]["stdin"] == "<- $(id) \u2028>\n1\n2"
    assert result["structuredContent"]["words"] == []


@pytest.mark.parametrize(
    ("command", "arguments", "given"),
    [
        (["{a}"], {"a": "string"}, {"a": "-rf"}),
        (["{a}"], {"a": "string"}, {"a": "-"}),
        (["{a}"], {"a": "string"}, {"a": "--"}),
        (["{a}"], {"a": "integer"}, {"a": -1}),
        (["{a}@{b}"], {"a": "string", "b": "string"}, {"a": "-oProxyCommand=x", "b": "h"}),
        (["{a}{b}"], {"a": "string", "b": "string"}, {"a": "", "b": "-x"}),
        ([], {"a": "string"}, {"a": "-x"}),
        ([], {"a": {"type": "array"}}, {"a": ["x", "-x"]}),
        ([], {"a": {"flag": "-n"}}, {"a": "-x"}),
        # Another program reads what follows its own name.
        (["--", "cat", "{a}"], {"a": "string"}, {"a": "-x"}),
    ],
)
async def test_a_value_that_would_be_an_option_is_refused_with_advice(
    command: list[str], arguments: dict[str, Any], given: dict[str, Any]
):
    said = await refusal(command, arguments, given)
    assert "begins with `-`" in said
    assert "`--` before" in said


async def test_an_option_may_be_given_where_the_configuration_says_so():
    arguments = {"a": {"options": True}, "b": {"default": "-d"}}
    assert await words(["{a}", "{b}"], arguments, {"a": "-x"}) == ["-x", "-d"]


WRONG: list[tuple[Any, Any, str]] = [
    ("integer", "3", "whole number"),
    ("integer", True, "whole number"),
    ("integer", 1.5, "whole number"),
    ("integer", 10**5000, "too long"),
    ("number", float("nan"), "finite"),
    ("boolean", "yes", "true or false"),
    ("string", 3, "must be text"),
    ("string", ["x"], "must be text"),
    ("string", "a\0b", "NUL"),
    ("string", "\ud800", "surrogate"),
    ("string", "x" * 200_000, "too long"),
    ("array", "x", "an array"),
    ({"type": "array", "items": "integer"}, [1, "2"], "whole number"),
    ({"type": "array", "maximum": 1}, ["a", "b"], "at most 1 items"),
    ({"choices": ["a", "b"]}, "c", "one of a, b"),
    ({"type": "integer", "choices": [1, 2]}, 3, "one of 1, 2"),
    ({"pattern": "[a-z]+"}, "abc\n", "must match"),
    ({"pattern": "[a-z]+"}, "abc;", "must match"),
    ({"pattern": "(x+x+)+y"}, "x" * 5_000 + "z", "too long to be held"),
    ({"type": "integer", "minimum": 0}, -1, "at least 0"),
    ({"maximum": 3}, "abcd", "at most 3 characters"),
    ({"required": True}, None, "a is missing"),
]


@pytest.mark.parametrize(("argument", "value", "said"), WRONG, ids=[said for *_, said in WRONG])
async def test_arguments_are_checked_again_behind_the_pipeline(
    argument: Any, value: Any, said: str
):
    assert said in await refusal(["--a={a}"], {"a": argument}, {"a": value})


async def test_an_argument_that_is_none_is_refused():
    assert "no argument 'b'" in await refusal(["{a}"], {"a": "string"}, {"a": "x", "b": 1})


# --- configuration


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("{program} x", "the program itself"),
        ("cat {path", "brace"),
        ("cat a | wc", "no shell"),
        ("cat 'a", "quotation"),
        ("", "at least 1"),
        (["sh", "-c", "cat {path}"], "as code"),
        (["ssh", "-p", "22", "-i", "key", "host", "ls", "{path}"], "a pattern or choices"),
        (["timeout", "9", "ssh", "-T", "--", "host", "cat /x/{path}"], "a pattern or choices"),
        (["watch", "-n", "2", "ls", "{path}"], "a pattern or choices"),
        (["/bin/bash", "-o", "pipefail", "-lc", "cat {path}"], "as code"),
        (["env", "sh", "-c", "cat {path}"], "as code"),
        (["docker", "exec", "box", "sh", "-c", "cat {path}"], "as code"),
        (["C:\\Windows\\System32\\cmd.exe", "/c", "dir {path}"], "as code"),
        (["pwsh", "-Command", "Get-Item", "x{path}"], "as code"),
        (["python3", "-c", "print('{path}')"], "as code"),
        (["python3", "-W", "ignore", "-cprint('{path}')"], "as code"),
        (["node", "--eval=f('{path}')"], "as code"),
        (["deno", "eval", "f('{path}')"], "as code"),
        (["su", "bob", "-c", "cat {path}"], "as code"),
        (["awk", "-F", ":", "/{text}/", "notes"], "as code"),
        (["sed", "-n", "-e", "/{text}/p", "notes"], "as code"),
        ("cat a; rm b", "no shell"),
        ("cat a >b", "no shell"),
        ({"command": "cat", "arguments": {"a": {"flag": "--a b"}}}, "a flag is one word"),
        (
            {"command": "cat {paht}", "arguments": {"path": "string"}},
            "{paht} is none of its arguments (path)",
        ),
        ({"command": "cat x{a}{b}", "arguments": {"a": "array", "b": "array"}}, "two arrays"),
        ({"command": "cat x{a}", "arguments": {"a": {"flag": "-a"}}}, "has a flag"),
        ({"command": "cat", "arguments": {"a b": {}}}, "no argument's name"),
        (
            {"command": "cat", "arguments": {"a": {"type": "integer", "default": "x"}}},
            "whole number",
        ),
        (
            {"command": "cat", "arguments": {"a": {"default": "x", "choices": ["y"]}}},
            "none of its choices",
        ),
        ({"command": "cat", "arguments": {"a": {"pattern": "("}}}, "no regular expression"),
        ({"command": "cat", "arguments": {"a": {"minimum": 2, "maximum": 1}}}, "over its maximum"),
        ({"command": "cat", "arguments": {"a": {"flag": "{}x"}}}, "begins with the option"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused_when_it_is_read(command: Any, said: str):
    with pytest.raises(ValidationError) as refused:
        CommandTool.model_validate(command)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", 'grep -- "$1" notes', "sh", "{word}"],
        ["bash", "-c", "{script}"],
        ["bash", "run.sh", "-c", "x{word}"],
        ["python3", "-m", "pytest", "-c", "x{word}"],
        ["python3", "run.py", "-c", "x{word}"],
        ["awk", "-f", "count.awk", "x{word}"],
        ["rg", "--type", "sh", "-c", "x{word}"],
        ["ssh", "-p", "22", "{host}", "uptime"],
        ["ssh", "host", "{script}"],
        ["grep", "watch", "{word}"],
        {"command": ["ssh", "host", "ls", "{path}"], "arguments": {"path": {"pattern": "[a-z/]+"}}},
        {"command": ["sed", "-n", "{line}p", "notes"], "arguments": {"line": "integer"}},
        {
            "command": ["sh", "-c", "make {target}"],
            "arguments": {"target": {"choices": ["test", "build"]}},
        },
    ],
)
def test_a_shell_may_be_given_words_of_its_own_and_what_cannot_be_code(command: Any):
    assert len(CommandTool.model_validate(command).arguments) == 1


def test_short_forms_say_the_same_as_the_long_ones():
    short = CommandTool.model_validate("git log '--format=%h %s' {path}")
    assert short.command == ("git", "log", "--format=%h %s", "{path}")
    assert short.arguments["path"].required
    unquoted = CommandTool.model_validate(
        {"command": ["cat", {"path": None}], "arguments": {"path": None}}
    )
    assert unquoted.command == ("cat", "{path}")
    assert not unquoted.arguments["path"].required
    # Under some names (`query`, `url` …) a file's scalars are read as text.
    coerced = {"type": "integer", "default": "7", "choices": ["7", 8], "required": "true"}
    query = CommandTool.model_validate(
        {"command": "x {query}", "arguments": {"query": coerced}}
    ).arguments["query"]
    assert (query.default, query.choices, query.required) == (7, (7, 8), True)


def test_the_items_of_an_array_share_the_time_that_their_pattern_may_take(
    monkeypatch: pytest.MonkeyPatch,
):
    tool = CommandTool.model_validate(
        {"command": "x {a}", "arguments": {"a": {"type": "array", "pattern": "[a-z]+"}}}
    )
    assert not checking.check_arguments(tool, {"a": ["b", "c"]}).problems
    monkeypatch.setattr(checking, "MAX_PATTERNS_S", 0.0)
    assert "takes too long" in checking.check_arguments(tool, {"a": ["b", "c"]}).problems[0]


# --- listing


async def test_a_command_is_listed_with_typed_parameters_and_true_annotations():
    tool = {
        "command": "x {count} {kind} {names}",
        "description": "Do x.",
        "arguments": {
            "count": {
                "type": "integer",
                "default": 3,
                "minimum": 1,
                "maximum": 9,
                "description": "How many.",
            },
            "kind": {"choices": ["a", "b"], "required": True},
            "names": {"type": "array", "items": "number", "maximum": 4},
            "word": {"pattern": "[a-z]+", "minimum": 1},
        },
        "read_only": True,
        "idempotent": True,
        "destructive": False,
        "open_world": False,
    }
    async with programs({"x": tool, "y": ["/opt/bin/y", "--token=abc"]}) as connection:
        listed = (await connection.request("tools/list"))["tools"]
    assert listed[0] == {
        "name": "x",
        "description": "Do x.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "count": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 9,
                    "default": 3,
                    "description": "How many.",
                },
                "kind": {"type": "string", "enum": ["a", "b"]},
                "names": {"type": "array", "items": {"type": "number"}, "maxItems": 4},
                "word": {"type": "string", "pattern": "^(?:[a-z]+)$", "minLength": 1},
            },
            "additionalProperties": False,
            "required": ["kind"],
        },
        "annotations": {
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        },
    }
    assert listed[1]["description"] == "Runs the program y."
    assert "abc" not in json.dumps(listed)


# --- answers


async def test_only_the_default_environment_and_what_is_configured_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SOME_SECRET", "s3cret")
    monkeypatch.setenv("NAMED", "passed")
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", "/etc/company/ca.pem")
    tool = {"command": ECHO_ARGUMENTS, "output": "json"}
    around: dict[str, Any] = {"env": {"OWN": "1"}, "inherit_env": ("NAMED",), "cwd": str(tmp_path)}
    async with programs({"it": tool}, **around) as connection:
        found = (await call(connection, "it"))["structuredContent"]
    assert "SOME_SECRET" not in found["env"]
    assert found["env"]["NODE_EXTRA_CA_CERTS"] == "/etc/company/ca.pem"
    assert (found["env"]["OWN"], found["env"]["NAMED"]) == ("1", "passed")
    assert os.path.realpath(found["cwd"]) == os.path.realpath(tmp_path)  # noqa: ASYNC240 - a folder of the test's


async def test_text_is_decoded_with_what_is_wrong_replaced_and_colours_taken_out():
    out = (
        rb"\x1b]0;title\x07\x1b[31mred\x1b[0m \xff "
        rb"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ a\rb\r\n\xe2\x9c\x93"
    )
    code = f"import sys; sys.stdout.buffer.write(b'{out.decode()}')"
    async with programs({"it": script(code)}) as connection:
        assert text(await call(connection, "it")) == "red \ufffd link a\nb\n\u2713"


def test_what_only_begins_like_a_sign_for_the_terminal_costs_no_text():
    assert (
        clean_output(b"\x1b]0;never ended\nkept\x1bPlost?\nkept")
        == "0;never ended\nkeptlost?\nkept"
    )


def test_no_control_character_is_left():
    assert not set(clean_output(bytes(range(256)) * 2)) & {
        chr(n) for n in (*range(9), *range(11, 32), *range(127, 160))
    }


async def test_silence_is_said_with_the_exit_code_and_what_was_said_beside():
    beside = script("import sys; print('done', file=sys.stderr)")
    async with programs({"none": script(""), "beside": beside}) as connection:
        assert text(await call(connection, "none")) == "(no output; exit code 0)"
        assert text(await call(connection, "beside")) == "(no output; exit code 0)\nstderr:\ndone"


async def test_a_failure_says_the_exit_code_and_the_last_words():
    code = (
        "import sys; print('o' * 9_000); print('no such thing', file=sys.stderr); "
        "sys.exit(int(sys.argv[1]))"
    )
    tool = {"command": script(code, "{code}"), "success": [0, 3]}
    async with programs({"it": tool}) as connection:
        failed, fine = (
            await call(connection, "it", code="2"),
            await call(connection, "it", code="3"),
        )
    assert failed["isError"]
    assert "failed: exit code 2\nstderr:\nno such thing\nstdout:\n… ooo" in text(failed)
    assert len(text(failed)) < 5_000
    assert "isError" not in fine


@posix_only
async def test_a_signal_is_said_by_its_name():
    async with programs({"it": script("import os; os.kill(os.getpid(), 11)")}) as connection:
        assert "ended by SIGSEGV" in text(await call(connection, "it"))


@pytest.mark.parametrize(
    ("printed", "structured"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[1, 2]\n", {"result": [1, 2]}),
        ("\x1b[32m{}\x1b[0m", {}),
        ("not", None),
        ("", None),
    ],
)
async def test_json_is_structured_content_and_what_is_none_is_a_failure(
    printed: str, structured: Any
):
    tool = {"command": script(f"import sys; sys.stdout.write({printed!r})"), "output": "json"}
    async with programs({"it": tool}) as connection:
        result = await call(connection, "it")
    assert result.get("structuredContent") == structured
    assert result.get("isError", False) is (structured is None)
    if structured is None:
        assert "not JSON" in text(result)


async def test_what_is_not_a_call_or_no_tool_is_said():
    async with programs({"it": "true"}) as connection:
        with pytest.raises(RemoteError, match="not available"):
            await connection.request("prompts/list")
        with pytest.raises(RemoteError, match="Unknown tool"):
            await call(connection, "other")


# --- pipes and ends


async def test_full_pipes_hold_up_nobody():
    code = (
        "import sys\n"
        "for _ in range(64): sys.stderr.write('e' * 65536); sys.stdout.write('o' * 65536)\n"
        "print(len(sys.stdin.read()))"
    )
    tool = {"command": script(code), "arguments": {"x": "string"}, "stdin": "{x}"}
    async with programs({"it": tool}) as connection:
        result = await call(connection, "it", x="x" * 2_000_000)
    assert text(result).endswith("o2000000\n")


async def test_a_program_may_ignore_its_input():
    tool = {"command": script("print('done')"), "arguments": {"x": "string"}, "stdin": "{x}"}
    async with programs({"it": tool}) as connection:
        assert text(await call(connection, "it", x="x" * 2_000_000)) == "done\n"


@pytest.mark.parametrize(
    "code", ["while True: sys.stdout.write('x' * 65536)", "sys.stdout.write('x' * 1_000_001)"]
)
async def test_a_flood_is_ended_and_says_its_bound(code: str):
    limits = LimitsConfig(max_message_bytes=1_000_000)  # pyright: ignore[reportArgumentType]
    async with programs({"it": script(f"import sys\n{code}")}, limits) as connection:
        result = await call(connection, "it")
    assert result["isError"]
    assert "more than 1,000,000 bytes" in text(result)


async def test_a_missing_program_fails_its_own_tool_alone():
    async with programs(
        {"lost": "no-such-program-here x", "there": script("print(1)")}
    ) as connection:
        with pytest.raises(ProgramNotStarted, match="does not exist") as failed:
            await call(connection, "lost")
        assert not failed.value.retryable
        assert "doctor" in failed.value.advice
        assert text(await call(connection, "there")) == "1\n"


FAMILY = """
import os, sys, time
if os.fork() == 0:
    open(sys.argv[1] + ".child", "w").write(str(os.getpid()))
    time.sleep(600)
while not os.path.exists(sys.argv[1] + ".child") or not os.path.getsize(sys.argv[1] + ".child"):
    time.sleep(0.01)
open(sys.argv[1] + ".parent", "w").write(str(os.getpid()))
time.sleep(float(sys.argv[2]))
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self").exists()  # not Linux: it was there a moment ago


async def family(mark: Path) -> list[int]:
    """The processes of a program that has a child."""
    async with asyncio.timeout(TEST_TIMEOUT_S):
        while True:
            try:
                return [int(mark.with_suffix(kind).read_text()) for kind in (".parent", ".child")]
            except (OSError, ValueError):
                await asyncio.sleep(0.01)


@posix_only
@pytest.mark.parametrize("way", ["cancel", "close", "exit"])
async def test_a_program_is_ended_with_all_its_children(tmp_path: Path, way: str):
    mark = tmp_path / "pids"
    async with programs({"it": script(FAMILY, "{mark}", "{seconds}")}) as connection:
        seconds = "0" if way == "exit" else "600"
        calling = asyncio.create_task(call(connection, "it", mark=str(mark), seconds=seconds))
        pids = await family(mark)
        if way == "cancel":
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(calling, TEST_TIMEOUT_S)
        elif way == "close":
            await asyncio.wait_for(connection.close(), TEST_TIMEOUT_S)
            with pytest.raises(BackendUnavailable, match="ended with the connection"):
                await asyncio.wait_for(calling, TEST_TIMEOUT_S)
        else:
            assert "no output" in text(await asyncio.wait_for(calling, TEST_TIMEOUT_S))
        assert not any(map(alive, pids))


@posix_only
async def test_a_program_that_takes_too_long_is_ended_with_all_its_children(tmp_path: Path):
    async with programs({"it": script(FAMILY, "{mark}", "600")}) as connection:
        for timeout_s in (0.5, 4, TEST_TIMEOUT_S):  # a busy machine may need that long to start it
            mark = tmp_path / f"pids-{timeout_s * 10:g}"
            with pytest.raises(BackendTimeout, match="did not end within"):
                await call(connection, "it", timeout_s, mark=str(mark))
            if mark.with_suffix(".child").exists() and mark.with_suffix(".parent").exists():
                break
        assert not any(map(alive, await family(mark)))


async def test_a_closed_connection_runs_nothing():
    async with programs({"it": script("print(1)")}) as connection:
        await connection.close()
        with pytest.raises(BackendUnavailable, match="closed"):
            await call(connection, "it")


@pytest.mark.parametrize(
    ("program", "value", "refused"),
    [
        ("C:\\tools\\npm.cmd", 'a" & calc & "', True),
        ("C:\\tools\\npm.CMD", "%PATH%", True),
        ("x.bat", "a\nb", True),
        ("x.bat", "a b_c.txt", False),
        ("x.exe", "a & b", False),
    ],
)
def test_a_batch_file_gets_no_signs_that_its_shell_would_read(
    program: str, value: str, refused: bool
):
    assert bool(explain_batch_refusal(program, [value])) is refused
