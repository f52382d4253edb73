"""Claude Code, Codex and Gemini CLI from npm: what each says of Portico, and one scripted turn.

Each runs on a copy of its folder, because a client writes into its own file while it runs, and the
user's files must stay as `portico install` left them.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.fleet import Fleet, Started
from tests.acceptance.model_endpoint import ModelEndpoint
from tests.acceptance.user import Ran, User, run_program

LIST_S = 90.0
TURN_S = 150.0


@dataclass(frozen=True)
class ClientProgram:
    """One client: how it is started, and how it lists its servers."""

    name: str
    command: tuple[str, ...]
    listing: tuple[str, ...]
    connected: str
    """What its list says on the line of a server that works."""
    turn: tuple[str, ...]
    variables: Mapping[str, str]


def prepare_programs(
    fleet: Fleet, user: User, model: ModelEndpoint, copies: Path
) -> list[ClientProgram]:
    """The three clients, each on a copy of its folder in `copies`."""
    home = user.files.home
    claude = copies / "claude"
    shutil.copytree(home / ".claude", claude)
    shutil.copy(home / ".claude.json", claude / ".claude.json")
    shutil.copytree(home / ".codex", copies / "codex")
    shutil.copytree(home / ".gemini", copies / "gemini" / ".gemini")
    binary = fleet.find_program("@anthropic-ai/claude-code-linux-x64", "claude")
    codex = fleet.find_program("@openai/codex", "bin/codex.js")
    gemini = fleet.find_program("@google/gemini-cli", "bundle/gemini.js")
    node = str(fleet.node)
    unattended = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    return [
        ClientProgram(
            "claude-code",
            (str(binary),),
            ("mcp", "list"),
            "Connected",
            ("-p", "go", "--allowedTools", "mcp__portico__call_tool"),
            {
                "CLAUDE_CONFIG_DIR": str(claude),
                "ANTHROPIC_BASE_URL": model.url,
                "ANTHROPIC_API_KEY": "sk-none",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
            },
        ),
        ClientProgram(
            "codex",
            (node, str(codex)),
            ("mcp", "list"),
            "enabled",
            ("exec", *unattended, "go"),
            {"CODEX_HOME": str(copies / "codex"), "SCRIPTED_KEY": "none"},
        ),
        ClientProgram(
            "gemini",
            (node, str(gemini)),
            ("mcp", "list"),
            "Connected",
            ("-y", "-m", "gemini-2.5-flash", "-p", "go"),
            {
                "GEMINI_CLI_HOME": str(copies / "gemini"),
                "GEMINI_API_KEY": "none",
                "GOOGLE_GEMINI_BASE_URL": model.url,
                "GEMINI_CLI_TRUST_WORKSPACE": "true",
            },
        ),
    ]


def list_portico(program: ClientProgram, user: User) -> tuple[bool, str]:
    """Whether the client's own list has Portico as working, and the line that says so."""
    ran = _run(program, program.listing, user, LIST_S)
    lines = [line for line in (ran.out + ran.err).splitlines() if "portico" in line.split(":")[0]]
    return any(program.connected in line for line in lines), "; ".join(lines) or ran.describe()


def take_turn(
    program: ClientProgram, user: User, model: ModelEndpoint, started: Started
) -> tuple[bool, str]:
    """Let the model call a tool behind Portico in one turn of the client."""
    model.script(f"{started.server.name}.{started.server.tool}", started.arguments)
    ran = _run(program, program.turn, user, TURN_S)
    if not model.results:
        offered = sum("call_tool" in name for name in model.tool_names)
        return False, f"no result reached the model ({offered} call_tool): {ran.describe()}"
    return started.answers_right(model.results[-1]), model.results[-1][-500:]


def _run(program: ClientProgram, arguments: tuple[str, ...], user: User, limit_s: float) -> Ran:
    env = {**user.env, **program.variables}
    command = (*program.command, *arguments)
    return run_program(command, env, Path(user.files.project), limit_s)
