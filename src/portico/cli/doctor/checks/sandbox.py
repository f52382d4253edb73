"""Checks that scripts run, one sum in each language, and how isolated the sandbox is."""

import asyncio
import sys
from typing import Any

from portico.cli.doctor.finding import ConfigLocations, DoctorFinding
from portico.config import Config
from portico.scripts.engines import EngineRegistry
from portico.scripts.sandbox.script import Language, Script, ScriptLimits
from portico.scripts.sandbox.worker.jail import find_missing_layers

_SUM_SCRIPTS: dict[Language, str] = {
    "python": "1 + 1",
    "lua": "return 1 + 1",
    "javascript": "1 + 1",
    "typescript": "const one: number = 1; one + 1",
}
_RUN_S = 30.0
_ENGINE_PACKAGES = {
    "python": "pydantic-monty",
    "lua": "lupa",
    "javascript": "quickjs-ng",
    "typescript": "quickjs-ng",
}


async def check(
    config: Config, locations: ConfigLocations
) -> tuple[dict[str, str], list[DoctorFinding]]:
    """Return the result for each configured language, and what is wrong with those that fail."""
    if not any(
        "run_code" in config.resolve_profile(name).metatools for name in (None, *config.profiles)
    ):
        return {}, []
    engines = EngineRegistry(1)
    results = dict[str, str]()
    findings = list[DoctorFinding]()
    try:
        for position, language in enumerate(config.code.languages):
            at = locations.locate("code", "languages", position)
            problem = await _run_sum(engines, language, config)
            results[language] = problem or "works"
            if problem:
                findings.append(_make_engine_finding(language, problem, at))
            elif not any(finding.id == "sandbox.jail_open" for finding in findings):
                findings += _check_jail(engines, language, at)
    finally:
        await engines.close()
    return results, findings


async def _run_sum(engines: EngineRegistry, language: Language, config: Config) -> str:
    limits = ScriptLimits(
        wall_s=_RUN_S, cpu_s=config.code.cpu_s, memory_bytes=int(config.code.memory)
    )
    try:
        async with asyncio.timeout(2 * _RUN_S):
            outcome = await engines.get_engine(language).run(
                Script(_SUM_SCRIPTS[language], language, limits=limits), _refuse_tool_call
            )
    except Exception as error:  # engines that cannot be imported or started raise anything
        return f"{type(error).__name__}: {error}"
    if outcome.fault is not None:
        return outcome.fault.message
    if outcome.value == 2:
        return ""
    return f"1 + 1 made {outcome.value!r}"


async def _refuse_tool_call(
    namespace: str, function: str, positional: list[Any], named: dict[str, Any]
) -> Any:
    raise AssertionError("a sum calls no tool")


def _make_engine_finding(language: Language, problem: str, at: dict[str, Any]) -> DoctorFinding:
    absent = "No module named" in problem or "ImportError" in problem or "ModuleNotFound" in problem
    message = f"scripts in {language} do not run: {problem[:300]}"
    if absent:
        package = _ENGINE_PACKAGES[language]
        remedy = f"pip install {package}  or leave {language} out of code.languages"
        return DoctorFinding("sandbox.engine_missing", "broken", message, remedy, **at)
    remedy = f"Raise code.memory, or leave {language} out of code.languages."
    return DoctorFinding("sandbox.fails", "broken", message, remedy, **at)


def _check_jail(
    engines: EngineRegistry, language: Language, at: dict[str, Any]
) -> list[DoctorFinding]:
    restrictions = getattr(engines.get_engine(language), "restrictions", ())
    open_layers = find_missing_layers(restrictions)
    if not open_layers:
        return []
    if sys.platform != "linux":
        message = (
            f"on this system scripts run without {', '.join(open_layers)}: only their own "
            "process holds them"
        )
        return [
            DoctorFinding(
                "sandbox.jail_open",
                "note",
                message,
                "Serve from Linux where agents are not trusted.",
                **at,
            )
        ]
    message = (
        f"scripts run without {', '.join(open_layers)}: one layer less between a script and "
        "this machine"
    )
    advice = (
        "Use a kernel with Landlock (5.13 or newer) and seccomp, and a container policy that "
        "allows them."
    )
    return [DoctorFinding("sandbox.jail_open", "warning", message, advice, **at)]
