"""Runs the blocks of one page, in order, in a folder and a home of its own."""

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from portico.cli.main import main
from portico.config import Config
from portico.config_file import load
from portico.demo import make_demo_servers
from portico.testing import connect, gateway_over
from tests.cli.conftest import own_logging
from tests.docs.blocks import ASSIGNMENT, Block, commands, matches

TIMEOUT_S = 240
_OURS = ("PORTICO_", "XDG_", "COLUMNS", "LINES", "FORCE_COLOR", "TIKTOKEN_")
_CLIENTS = (
    "CODEX_HOME",
    "CLAUDE_CONFIG_DIR",
    "GEMINI_CLI_HOME",
    "CLINE_",
    "FLATPAK_XDG_CONFIG_HOME",
)


class Page:
    """Describes what the blocks of a page share: files, variables, names, and the last output."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        for name in os.environ:
            if name.startswith((*_OURS, *_CLIENTS)):
                patch.delenv(name)
        for name in ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA"):
            patch.setenv(name, str(folder))
        # Not PORTICO_DATA_DIR: the SDK hands a server few variables, and commands and servers of a
        # page share what they learned.
        patch.setenv("NO_COLOR", "1")
        patch.setenv("COLUMNS", "120")
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        self._folder, self._patch = folder, patch
        self._names: dict[str, Any] = {"__name__": "__page__"}
        self._said = ""

    def run(self, block: Block) -> None:
        """Do with a block what its marks say."""
        if name := block.marks.get("file"):
            file = self._folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        if "output" in block.marks:
            assert matches(block.text.splitlines(), self._said), (
                f"{block.where}: it printed\n{self._said}"
            )
        kinds: dict[str, Callable[[Block], None]] = {
            "configuration": self._configuration,
            "console": self._console,
            "python": self._python,
            "run_code": self._script,
            "run_workflow": self._workflow,
        }
        if "runnable" in block.marks:
            assert block.kind in kinds, (
                f"{block.where}: nobody knows how to run {block.kind or block.language!r}"
            )
            kinds[block.kind](block)

    def _configuration(self, block: Block) -> None:
        """It loads, once the variables that it names are set, and every server in it can be
        used."""
        file = (
            self._folder / "tried" / ("portico.yaml" if block.language == "yaml" else ".mcp.json")
        )
        file.parent.mkdir(exist_ok=True)
        file.write_text(block.text, encoding="utf-8")
        variables = dict.fromkeys(re.findall(r"\$\{(?:env:)?(\w+)", block.text), "value")
        loaded = load([file], environ={**os.environ, **variables})
        for name, server in loaded.config.servers.items():
            assert not server.problem, f"{block.where}: {name}: {server.problem}"

    def _console(self, block: Block) -> None:
        wanted = int(block.marks.get("exit", 0))
        steps = list(commands(block))
        assert steps, f"{block.where}: no line begins with $"
        for number, (command, shown) in enumerate(steps, 1):
            code, self._said = self._command(shlex.split(command, comments=True), block)
            expected = wanted if number == len(steps) else 0
            assert code == expected, f"{block.where}: {command} ended with {code}\n{self._said}"
            if any(line.strip() for line in shown):
                assert matches(shown, self._said), f"{block.where}: {command} printed\n{self._said}"

    def _command(self, words: list[str], block: Block) -> tuple[int, str]:
        exported = words[0] == "export"
        assigned = dict(word.split("=", 1) for word in words if ASSIGNMENT.match(word))
        if exported:
            for name, value in assigned.items():
                self._patch.setenv(name, value)
            return 0, ""
        program, *arguments = [word for word in words if not ASSIGNMENT.match(word)]
        with pytest.MonkeyPatch.context() as patch:
            for name, value in assigned.items():
                patch.setenv(name, value)
            if program == "portico":
                with _capture_output() as said, own_logging():
                    code = main(arguments)
                return code, said()
            assert program == "python", (
                f"{block.where}: {program} is not run here; take the mark away"
            )
            reported = [sys.executable, *arguments]
            done = subprocess.run(
                reported,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
                check=False,
            )
            return done.returncode, done.stdout.decode()

    def _python(self, block: Block) -> None:
        if '"stdio"' in block.text:
            # A first search waits a second at most for servers that were never listed.
            code, said = self._command(["portico", "status"], block)
            assert code == 0, said
            # Naming a tool waits until its server is listed, however busy the machine is.
            code, said = self._command(["portico", "describe", "units.convert_units"], block)
            assert code == 0, said
        # Padded, so that a traceback names the line of the page.
        source = "\n" * block.line + block.text
        code = compile(source, block.where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with _capture_output() as said:
            result = eval(code, self._names)
            if inspect.iscoroutine(result):
                asyncio.run(asyncio.wait_for(result, TIMEOUT_S))
        self._said = said()

    def _script(self, block: Block) -> None:
        result = asyncio.run(
            _call_meta_tool("run_code", {"code": block.text, "language": block.language})
        )
        assert not result.is_error, f"{block.where}: {result.content}"
        assert "returned nothing" not in result.content[0].text
        assert "not awaited" not in result.content[-1].text

    def _workflow(self, block: Block) -> None:
        asked: dict[str, Any] = json.loads(block.text)
        result = asyncio.run(_call_meta_tool("run_workflow", asked))
        assert not result.is_error, f"{block.where}: {result.content}"
        text = result.content[0].text
        if "steps" in asked or asked.get("run"):
            assert "Workflow finished" in text, f"{block.where}: {text}"
        else:
            assert result.structured_content["steps"]


async def _call_meta_tool(tool: str, arguments: dict[str, Any]) -> Any:
    """Return what a meta-tool answers on the demo servers; a workflow that stops to ask is
    approved, if it
    destroys."""
    async with (
        gateway_over(config=Config(servers=make_demo_servers())) as gateway,
        connect(gateway) as client,
    ):
        result: Any = await asyncio.wait_for(client.call_tool(tool, arguments), TIMEOUT_S)
        if not result.is_error and (
            stopped := re.search(r'resume="([^"]+)"', result.content[0].text)
        ):
            assert any("delete" in step["tool"] for step in arguments["steps"])
            result = await asyncio.wait_for(
                client.call_tool(tool, {"resume": stopped[1]}), TIMEOUT_S
            )
        return result


@contextlib.contextmanager
def _capture_output() -> Generator[Callable[[], str]]:
    """Return what is printed meanwhile, on stdout and stderr together, as a terminal has it."""
    kept = io.BytesIO()
    stream = io.TextIOWrapper(kept, encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        yield lambda: kept.getvalue().decode()
        stream.detach()
