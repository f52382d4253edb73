"""What this machine can contain: tried out once, by containing a program that does nothing."""

import asyncio
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace

from portico.containment.specification import FAILURE_PREFIX, Specification
from portico.upstream.transports.own_processes import render_main_import

_TRIAL_S = 30.0
NAMESPACE_ADVICE = (
    "Allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone,"
    " kernel.apparmor_restrict_unprivileged_userns), or use Linux 6.12 or newer, where Landlock"
    " alone is enough"
)
_ADVICE = (
    f"{NAMESPACE_ADVICE}. In a container its policy must allow landlock_create_ruleset and"
    " seccomp. To run the server uncontained, write contain: false."
)


@dataclass(frozen=True)
class MachineSupport:
    """What was found out. Empty reasons: it works."""

    namespaces: str = ""
    """Why servers get no namespaces of their own."""
    containment: str = ""
    """Why nothing can be contained at all."""
    loopback: str = ""
    """Why a server cannot be held to this machine's loopback."""

    @property
    def has_namespaces(self) -> bool:
        return not self.namespaces

    def find_obstacle(self, network: str) -> str:
        """Return why a server with this network cannot be contained; empty if it can."""
        if self.containment:
            return self.containment
        return self.loopback if network == "loopback" else ""

    def describe(self) -> str:
        if self.containment:
            return f"not possible: {self.containment}"
        parts = ["Landlock", "seccomp"]
        if self.has_namespaces:
            parts.insert(0, "namespaces")
        without = f" (no namespaces: {self.namespaces})" if self.namespaces else ""
        narrower = f" (not network: loopback: {self.loopback})" if self.loopback else ""
        return ", ".join(parts) + without + narrower


_FOUND: list[MachineSupport] = []
"""Kept once something can be contained."""


def advise(support: MachineSupport, network: str) -> str:
    """Return what to do where a server cannot be contained."""
    if sys.platform != "linux":
        return "Run the gateway on Linux (or in WSL 2 or a container), or write contain: false."
    if not support.containment and network == "loopback":
        return (
            "Allow pidfd_getfd (in a container: --cap-add SYS_PTRACE), or write network: none or"
            " all."
        )
    return _ADVICE


def render_launch(specification: Specification) -> list[str]:
    """Return the command line that starts a contained server."""
    code = render_main_import("portico.containment.launcher") + "main(sys.argv[1])"
    return [sys.executable, "-I", "-S", "-c", code, specification.to_json()]


async def find_support() -> MachineSupport:
    return await asyncio.to_thread(_try_out)


def _try_out() -> MachineSupport:
    if sys.platform != "linux":
        return MachineSupport(containment=f"{sys.platform} has no means for it, only Linux has")
    if _FOUND:
        return _FOUND[0]
    support = _try_all()
    if not support.containment:  # else it may have been a moment of trouble
        _FOUND.append(support)
    return support


def _try_all() -> MachineSupport:
    namespaces = _try_one("none", has_namespaces=True)
    containment = _try_one("none", has_namespaces=False) if namespaces else ""
    if containment:
        containment = f"{containment}; and {namespaces}"
        return MachineSupport(namespaces, containment)
    return MachineSupport(namespaces, "", _try_one("loopback", has_namespaces=not namespaces))


def _try_one(network: str, *, has_namespaces: bool) -> str:
    """Return why a containment does not work; empty if it does."""
    with tempfile.TemporaryDirectory(prefix="portico-") as folder:
        home, temporary, root = (os.path.join(folder, name) for name in ("home", "tmp", "root"))
        for path in (home, temporary, root):
            os.mkdir(path)
        trial = Specification((), network, (), (), home, temporary, root, cwd=home)
        trial = replace(trial, has_namespaces=has_namespaces)
        try:
            done = subprocess.run(  # noqa: S603 - own interpreter
                render_launch(trial),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={},
                timeout=_TRIAL_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"it could not be tried out: {error}"
    if done.returncode == 0:
        return ""
    said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return said.removeprefix(FAILURE_PREFIX) or f"the trial ended with {done.returncode}"
