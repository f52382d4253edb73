"""Whether scripts run: one sum in each language, and how closed the room is that they run in."""

import asyncio
import sys
from typing import Any

from portico.cli.doctor.finding import Finding, Places
from portico.config import Config
from portico.execution.sandbox.script import Language, Limits, Script
from portico.execution.sandbox.worker.jail import missing
from portico.execution.scripting.engines import Engines

_SUMS: dict[Language, str] = {
    "python": "1 + 1",
    "lua": "return 1 + 1",
    "javascript": "1 + 1",
    "typescript": "const one: number = 1; one + 1",
}
_RUN_S = 30.0
_EXTRAS = {"python": "pydantic-monty", "lua": "lupa", "javascript": "quickjs-ng", "typescript": "quickjs-ng"}


async def check(config: Config, places: Places) -> tuple[dict[str, str], list[Finding]]:
    """What each configured language said, and what is wrong with those that did not."""
    if not any("run_code" in config.view(name).metatools for name in (None, *config.profiles)):
        return {}, []
    engines, told, findings = Engines(1), dict[str, str](), list[Finding]()
    try:
        for position, language in enumerate(config.code.languages):
            at = places.at("code", "languages", position)
            problem = await _sum(engines, language, config)
            told[language] = problem or "works"
            if problem:
                findings.append(_broken(language, problem, at))
            elif not any(one.id == "sandbox.jail_open" for one in findings):
                findings += _jail(engines, language, at)
    finally:
        await engines.close()
    return told, findings


async def _sum(engines: Engines, language: Language, config: Config) -> str:
    limits = Limits(wall_s=_RUN_S, cpu_s=config.code.cpu_s, memory_bytes=int(config.code.memory))
    try:
        async with asyncio.timeout(2 * _RUN_S):
            outcome = await engines.of(language).run(Script(_SUMS[language], language, limits=limits), _nobody)
    except Exception as error:  # an engine that cannot be imported or started says so in its own way
        return f"{type(error).__name__}: {error}"
    if outcome.fault is not None:
        return outcome.fault.message
    return "" if outcome.value == 2 else f"1 + 1 made {outcome.value!r}"


async def _nobody(namespace: str, function: str, positional: list[Any], named: dict[str, Any]) -> Any:
    raise AssertionError("a sum calls no tool")


def _broken(language: Language, problem: str, at: dict[str, Any]) -> Finding:
    absent = "No module named" in problem or "ImportError" in problem or "ModuleNotFound" in problem
    return Finding(
        "sandbox.engine_missing" if absent else "sandbox.fails",
        "broken",
        f"scripts in {language} do not run: {problem[:300]}",
        f"pip install {_EXTRAS[language]}  or leave {language} out of code.languages"
        if absent
        else f"Raise code.memory, or leave {language} out of code.languages.",
        **at,
    )


def _jail(engines: Engines, language: Language, at: dict[str, Any]) -> list[Finding]:
    kept: tuple[str, ...] = getattr(engines.of(language), "kept", ())
    open_layers = missing(kept)
    if not open_layers:
        return []
    if sys.platform != "linux":
        said = f"on this system scripts run without {', '.join(open_layers)}: only their own process holds them"
        return [Finding("sandbox.jail_open", "note", said, "Serve from Linux where agents are not trusted.", **at)]
    said = f"scripts run without {', '.join(open_layers)}: one layer less between a script and this machine"
    advice = "Use a kernel with Landlock (5.13 or newer) and seccomp, and a container policy that allows them."
    return [Finding("sandbox.jail_open", "warning", said, advice, **at)]
