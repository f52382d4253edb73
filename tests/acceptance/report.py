"""The command line: installs, plays the new user, and prints what was seen.

python -m tests.acceptance install [FOLDER]   brings servers and clients (npm, pip, network)
python -m tests.acceptance run [FOLDER]       plays; exit code 1 where something does not hold
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from pathlib import Path

from tests.acceptance import fleet
from tests.acceptance.client_files import write_client_files
from tests.acceptance.fleet import Fleet
from tests.acceptance.model_endpoint import serve_model
from tests.acceptance.steps import WAYS, Acceptance
from tests.acceptance.surroundings import HOSTS, surround
from tests.acceptance.user import User
from tests.real_servers import sandbox
from tests.real_servers.installation import NotInstalled

DRAWING = '<mxfile><diagram id="1" name="tea"><mxGraphModel/></diagram></mxfile>'
ESLINT = "export default [{rules: {'no-var': 'error'}}];\n"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.acceptance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=["install", "run"])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--keep", type=Path, help="play in this new folder, and keep it")
    options = parser.parse_args()
    chosen = fleet.load(options.folder)
    try:
        if options.action == "install":
            fleet.install(chosen)
            return 0
        fleet.require_installed(chosen)
    except NotInstalled as missing:
        print(missing)
        return 2
    began = time.monotonic()
    played = play(chosen, options.keep)
    print(describe(played))
    failed = [check for check in played.checks if not check.holds]
    held = len(played.checks) - len(failed)
    print(f"\n{held} of {len(played.checks)} hold, after {time.monotonic() - began:.0f} s")
    return int(bool(failed))


def play(chosen: Fleet, keep: Path | None = None) -> Acceptance:
    """Play every step in a new folder."""
    root = keep or Path(tempfile.mkdtemp(prefix="acceptance-"))
    try:
        home = root.resolve() / "home"
        project = home / "project"
        project.mkdir(parents=True)
        (root / "around").mkdir()
        everything = chosen.start_command(chosen.servers[0])
        remote = [*everything, "streamableHttp"]
        with surround(root / "around", remote, chosen.path) as around, serve_model() as model:
            files = sandbox.make(root / "sandbox")
            _add_files(files / "files")
            places = {
                **around.places,
                "sandbox": str(files),
                "page": f"https://{HOSTS[0]}/tea.txt",
                "mark": f"run{os.getpid()}",
            }
            servers = chosen.place(places)
            written = write_client_files(home, project, servers, model.url)
            env = {
                "HOME": str(home),
                "PATH": chosen.path,
                "LANG": "C.UTF-8",
                "USER": "ann",
                "TERM": "dumb",
                **around.variables,
            }
            played = Acceptance(chosen, User(written, env), servers, model)
            asyncio.run(played.run())
            return played
    finally:
        if keep is None:
            shutil.rmtree(root, ignore_errors=True)


def _add_files(folder: Path) -> None:
    """What some servers of the table read, beside the sandbox's own files."""
    (folder / "eslint").mkdir()
    (folder / "eslint/eslint.config.mjs").write_text(ESLINT, "utf-8")
    (folder / "eslint/a.js").write_text("var tea = 1;\n", "utf-8")
    (folder / "plan.drawio").write_text(DRAWING, "utf-8")


def describe(played: Acceptance) -> str:
    """A table of the servers, and how much of each step holds."""
    lines = [f"{'server':22}" + "".join(f"{way:>10}" for way in WAYS)]
    for it in played.servers:
        name = it.server.name
        lines.append(f"{name:22}" + "".join(f"{_mark(played, way, name):>10}" for way in WAYS))
    total = f"{'works':22}"
    for way in WAYS:
        answers = played.answers.get(way, {})
        total += f"{sum(answer.works for answer in answers.values()):>10}"
    lines += [f"{total}   of {len(played.servers)}", ""]
    for step in dict.fromkeys(check.step for check in played.checks):
        checks = [check for check in played.checks if check.step == step]
        lines.append(f"{step:22}{sum(check.holds for check in checks)} of {len(checks)} hold")
    return "\n".join(lines)


def _mark(played: Acceptance, way: str, name: str) -> str:
    answer = played.answers.get(way, {}).get(name)
    if answer is None:
        return "-"
    return "works" if answer.works else "no"
