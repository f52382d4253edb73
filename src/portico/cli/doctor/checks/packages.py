"""Detects the package that a runner fetches, and whether its version is pinned. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TAKES_VALUE: dict[str, frozenset[str]] = {
    "npx": frozenset(
        ("-p", "--package", "-c", "--call", "-w", "--workspace", "--registry", "--prefix")
    ),
    "uvx": frozenset(
        ("--from", "--with", "--with-editable", "--python", "-p", "--index-url", "--index")
    ),
    "docker": frozenset((
        "-e", "--env", "-v", "--volume", "--mount", "--name", "-p", "--publish", "--network",
        "--net", "--env-file", "-w", "--workdir", "-u", "--user", "--entrypoint", "--add-host",
        "--platform", "--memory", "-m", "--cpus", "-l", "--label",
    )),
}  # fmt: skip
_NPM_VERSION = re.compile(r"(?:@[^/@]+/)?[^@]+@(?P<version>.+)")
_PYTHON_VERSION = re.compile(r".*(?:==|@)\s*(?P<version>[\w.]+).*")
_LOCAL = re.compile(r"(?:[./~]|git\+|https?://|file:|github:).*")


@dataclass(frozen=True)
class UnpinnedPackage:
    """A package whose version is not pinned."""

    message: str
    remedy: str


def find_unpinned(program: str, args: Sequence[str]) -> UnpinnedPackage | None:
    """Return the package that a runner would fetch in its newest version; None if pinned or
    none.
    """
    if program in ("npx", "bunx", "pnpx"):
        return _check_npm(program, args)
    if program in ("pnpm", "yarn", "bun") and args[:1] in (["dlx"], ["x"], ("dlx",), ("x",)):
        return _check_npm(program, args[1:])
    if program == "uvx" or (program == "uv" and tuple(args[:2]) == ("tool", "run")):
        return _check_python(args if program == "uvx" else args[2:])
    if program == "pipx" and tuple(args[:1]) == ("run",):
        return _check_python(args[1:])
    if program in ("docker", "podman") and tuple(args[:1]) == ("run",):
        return _check_image(args[1:])
    return None


def _find_package(args: Sequence[str], program: str, source: tuple[str, ...]) -> str:
    """Return the package a runner fetches: the value of its option, else its first plain
    argument.
    """
    options_with_value = _TAKES_VALUE[program]
    before = ""
    for argument in args:
        option, sign, value = argument.partition("=")
        if before in source:
            return argument
        if sign and option in source:
            return value
        if not argument.startswith("-") and before not in options_with_value:
            return argument
        before = argument
    return ""


def _check_npm(program: str, args: Sequence[str]) -> UnpinnedPackage | None:
    package = _find_package(args, "npx", ("-p", "--package"))
    pinned = _NPM_VERSION.fullmatch(package)
    if (
        not package
        or _LOCAL.fullmatch(package)
        or (pinned and pinned["version"] not in ("latest", "next", "*"))
    ):
        return None
    bare = package.removesuffix("@latest")
    return _make_unpinned(bare, f"Write {bare}@1.2.3 (npm view {bare} version tells the newest).")


def _check_python(args: Sequence[str]) -> UnpinnedPackage | None:
    package = _find_package(args, "uvx", ("--from", "--spec"))
    pinned = _PYTHON_VERSION.fullmatch(package)
    if not package or _LOCAL.fullmatch(package) or (pinned and pinned["version"] != "latest"):
        return None
    bare = package.removesuffix("@latest")
    return _make_unpinned(bare, f"Write {bare}==1.2.3.")


def _check_image(args: Sequence[str]) -> UnpinnedPackage | None:
    image = _find_package(args, "docker", ())
    tag = image.rpartition("/")[2].partition(":")[2]
    if not image or "@sha256:" in image or (tag and tag != "latest"):
        return None
    return _make_unpinned(
        image, f"Write {image.removesuffix(':latest')}:1.2.3, or its @sha256 digest."
    )


def _make_unpinned(package: str, remedy: str) -> UnpinnedPackage:
    return UnpinnedPackage(
        f"{package} is fetched in whatever version is newest: its tools may change from one "
        "start to the next",
        remedy,
    )
