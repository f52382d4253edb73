"""The programs that start packages: `npx`, `uvx` and `docker`, and which of their options an entry
of a registry may use. Pure.

What would start something else than the named package in its named version is refused: other
registries, ranges, options that install or mount more, variables that change where packages come
from.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from portico.registry.server_json import RegistryPackage, UnusableServer

PACKAGE_KINDS = ("npm", "pypi", "oci", "mcpb")
_RUNTIMES: Mapping[str, tuple[str, ...]] = {
    "npm": ("npx", "node", "npm"),
    "pypi": ("uvx", "uv", "python", "python3", "pip", "pipx"),
    "oci": ("docker",),
    "mcpb": (),
}
"""What packages of a kind are started with elsewhere; here always with the first."""
INDEXES: Mapping[str, str] = {
    "npm": "https://registry.npmjs.org",
    "pypi": "https://pypi.org",
}
"""Where `npx` and `uvx` look; another index would not be asked."""
_NPM_NAME = re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*", re.IGNORECASE)
_PYPI_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_IMAGE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9.-]*(?::[0-9]{1,5})?(?:/[a-z0-9][a-z0-9._-]*)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
EXACT_VERSION = re.compile(r"v?[0-9]+(?:\.[0-9]+)*[0-9A-Za-z.+_!-]{0,120}")
_WILD_PART = re.compile(r"(?:^|\.)[xX*](?:\.|$)")
_MOVING_TAGS = frozenset({"", "latest", "main", "master", "edge", "nightly", "stable", "dev"})
REDIRECTING_VARIABLE = re.compile(
    r"(?:npm_|uv_|pip_|pipx_|ld_|dyld_|docker_|xdg_).*|node_(?!env$).*"
    r"|python(?!unbuffered$|utf8$|ioencoding$).*"
    r"|path|bash_env|env|ifs|shell|https?_proxy|all_proxy|ssl_cert_(?:file|dir)|home",
    re.IGNORECASE,
)
"""Variables that change what is installed, loaded or run."""
_INTERPRETERS = frozenset(
    {"python", "python3", "sh", "bash", "zsh", "node", "perl", "ruby", "env", "git", "curl"}
)
_DOCKER_FLAGS = frozenset(
    {"-i", "--interactive", "--rm", "--init", "--read-only", "-t", "-it", "-ti"}
)
_DOCKER_OPTIONS = frozenset({"--memory", "-m", "--cpus", "--pids-limit", "--name", "--platform"})
_DOCKER_MOUNTS = frozenset({"-v", "--volume", "--mount"})
_DOCKER_VARIABLES = frozenset({"-e", "--env"})
_DOCKER_NETWORKS = frozenset({"--network", "--net"})
BY_HAND = "Add it by hand if you want exactly that: portico add NAME -- COMMAND…"


@dataclass(frozen=True)
class PackageFile:
    """A package's file, checked and kept: started instead of what its index has."""

    path: str
    program: str = ""
    """npm: which of its programs is the server."""


@dataclass(frozen=True)
class CommandWord:
    """A word of a command line, and whether its value is the user's own."""

    text: str
    is_from_user: bool = False


@dataclass(frozen=True)
class PackageRuntime:
    """How a package is started; arguments of the package follow."""

    program: str
    options: tuple[str, ...]
    package: str
    remarks: tuple[str, ...] = ()


def plan_runtime(
    package: RegistryPackage,
    wanted: Sequence[CommandWord],
    variables: Sequence[str],
    file: PackageFile | None = None,
) -> PackageRuntime:
    """Return how an npm, pypi or oci package is started; raises UnusableServer.

    `wanted` are the entry's arguments of the runtime, `variables` its environment variables.
    """
    kind = package.registryType
    if package.runtimeHint and package.runtimeHint not in _RUNTIMES.get(kind, ()):
        raise UnusableServer(
            f"it wants to be started by {package.runtimeHint[:60]!r}, which is no runtime of "
            f"{kind[:60]} packages",
            advice=BY_HAND,
        )
    _check_index(package)
    if kind == "npm":
        return _plan_npm(package, wanted, file)
    if kind == "pypi":
        return _plan_pypi(package, wanted, file)
    if kind == "oci":
        return _plan_image(package, wanted, variables)
    raise UnusableServer(f"Portico starts no packages of the kind {kind[:60]!r} so")


def _check_index(package: RegistryPackage) -> None:
    index = INDEXES.get(package.registryType)
    named = package.registryBaseUrl.rstrip("/")
    if index is not None and named and named != index:
        raise UnusableServer(
            f"its package is in another registry than {index}: {named[:100]}",
            advice=BY_HAND,
        )


def _check_version(version: str) -> str:
    if not EXACT_VERSION.fullmatch(version) or _WILD_PART.search(version):
        raise UnusableServer(
            f"it names no exact version of its package: {version[:60] or 'none'!r}",
            advice="Portico starts only what was looked at. " + BY_HAND,
        )
    return version


def _plan_npm(
    package: RegistryPackage, wanted: Sequence[CommandWord], file: PackageFile | None
) -> PackageRuntime:
    if not _NPM_NAME.fullmatch(package.identifier):
        raise UnusableServer(f"{package.identifier[:100]!r} is no name of an npm package")
    version = _check_version(package.version)
    for word in wanted:
        if word.text not in ("-y", "--yes", "-q", "--quiet"):
            raise _refuse_option("npx", word.text)
    if file is not None:
        return PackageRuntime("npx", ("-y", "--package", file.path), file.program)
    return PackageRuntime("npx", ("-y",), f"{package.identifier}@{version}")


def _plan_pypi(
    package: RegistryPackage, wanted: Sequence[CommandWord], file: PackageFile | None
) -> PackageRuntime:
    if not _PYPI_NAME.fullmatch(package.identifier):
        raise UnusableServer(f"{package.identifier[:100]!r} is no name of a PyPI package")
    version = _check_version(package.version)
    pinned = f"{package.identifier}=={version}"
    options: list[str] = []
    program = package.identifier
    rest = iter(_split_options(wanted))
    for word in rest:
        text = word.text
        if text in ("-q", "--quiet"):
            continue
        if text in ("--python", "-p"):
            chosen = _take_next(rest, text).text
            if not re.fullmatch(r"[0-9]+(?:\.[0-9]+){0,2}", chosen):
                raise _refuse_option("uvx", f"{text} {chosen}")
            options += ["--python", chosen]
        elif text == "--from":
            source = _take_next(rest, text).text
            name, _, named = source.replace("==", "@").partition("@")
            same = normalize_name(name.partition("[")[0]) == normalize_name(package.identifier)
            if not same or (named and named != version):
                raise _refuse_option("uvx", f"--from {source}")
        elif _is_own_program(text.partition("@")[0], package.identifier):
            program = text.partition("@")[0]
        else:
            raise _refuse_option("uvx", text)
    return PackageRuntime("uvx", (*options, "--from", file.path if file else pinned), program)


def _is_own_program(program: str, identifier: str) -> bool:
    """Return whether a program is named after its package: `uvx` also finds others on this
    machine, such as shells."""
    if not _PYPI_NAME.fullmatch(program) or program.lower() in _INTERPRETERS:
        return False
    own = set(normalize_name(identifier).split("-"))
    return set(normalize_name(program).split("-")) <= own


def normalize_name(name: str) -> str:
    """Return the name of a PyPI package as its index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _plan_image(
    package: RegistryPackage, wanted: Sequence[CommandWord], variables: Sequence[str]
) -> PackageRuntime:
    found = _IMAGE.fullmatch(package.identifier)
    if found is None:
        raise UnusableServer(f"{package.identifier[:100]!r} is no name of an image")
    if package.fileSha256:
        raise UnusableServer(
            "it gives a hash of its image as of a file, which nothing can check",
            advice="An image is named exactly by its digest: name@sha256:…",
        )
    image = package.identifier
    tag = found["tag"] or ""
    if found["digest"] is None:
        if not tag and package.version:
            tag = _check_version(package.version)
            image = f"{image}:{tag}"
        if tag.lower() in _MOVING_TAGS:
            raise UnusableServer(
                f"it names no version of its image: {package.identifier[:100]!r}",
                advice="Portico starts only what was looked at. " + BY_HAND,
            )
    options = ["run", "-i", "--rm"]
    rest = iter(_split_options(wanted))
    for word in rest:
        text = word.text
        if text in _DOCKER_FLAGS or (text == "run" and word is wanted[0]):
            continue
        if text in _DOCKER_VARIABLES:
            name = _take_next(rest, text).text
            if REDIRECTING_VARIABLE.fullmatch(name.partition("=")[0]):
                raise refuse_variable(name.partition("=")[0])
            options += ["-e", name]
        elif text in _DOCKER_MOUNTS:
            mount = _take_next(rest, text)
            if not mount.is_from_user:
                raise UnusableServer(
                    f"it mounts {mount.text[:100]!r}, which nobody chose, into its container",
                    advice=BY_HAND,
                )
            options += [text, mount.text]
        elif text in _DOCKER_NETWORKS:
            network = _take_next(rest, text).text
            if network not in ("none", "bridge"):
                raise _refuse_option("docker", f"{text} {network}")
            options += ["--network", network]
        elif text in _DOCKER_OPTIONS:
            options += [text, _take_next(rest, text).text]
        else:
            raise _refuse_option("docker", text)
    for name in variables:
        options += ["-e", name]
    remarks: tuple[str, ...] = ()
    if found["digest"] is None:
        remarks = ("A tag of an image can be moved: only an entry with a digest stays the same.",)
    return PackageRuntime("docker", tuple(options), image, remarks)


def _split_options(words: Sequence[CommandWord]) -> Iterator[CommandWord]:
    """Yield `--option=value` as two words."""
    for word in words:
        name, sign, value = word.text.partition("=")
        if sign and name.startswith("--"):
            yield CommandWord(name)
            yield CommandWord(value, word.is_from_user)
        else:
            yield word


def _take_next(words: Iterator[CommandWord], option: str) -> CommandWord:
    word = next(words, None)
    if word is None or word.text.startswith("-"):
        raise UnusableServer(f"its option {option} has no value")
    return word


def _refuse_option(runtime: str, text: str) -> UnusableServer:
    return UnusableServer(
        f"it wants {runtime} to be started with {text[:100]!r}, which could run or open something "
        "else than the package",
        advice=BY_HAND,
    )


def refuse_variable(name: str) -> UnusableServer:
    return UnusableServer(
        f"it sets the variable {name[:60]}, which changes what is installed or run",
        advice=BY_HAND,
    )
