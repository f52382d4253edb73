"""The manifest of a bundle (`manifest.json`): what it asks of its user, and how it is started.

Pure, but for looking whether its files exist.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError

from portico.registry.asked_values import AskedValue, Values
from portico.registry.package_launch import LaunchPlan
from portico.registry.package_runtimes import REDIRECTING_VARIABLE, refuse_variable
from portico.registry.server_json import (
    MAX_ITEMS,
    MAX_SERVER_JSON_BYTES,
    RegistryModel,
    ShortText,
    Text,
    UnusableServer,
    decode_object,
    describe_problem,
)

_PLACEHOLDER = re.compile(r"\$\{([^{}]*)\}")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_RUNTIMES: Mapping[str, tuple[str, ...]] = {
    "node": ("node",),
    "python": ("python", "python3"),
    "uv": ("uv",),
}
_LOADER_VARIABLES = frozenset({"PYTHONPATH", "NODE_PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})
"""Variables that may lead into the bundle, and nowhere else."""
Texts = Annotated[tuple[Text, ...], Field(max_length=MAX_ITEMS)]


class BundleOption(RegistryModel):
    """A value that a bundle asks for."""

    type: Literal["string", "number", "boolean", "directory", "file"] = "string"
    title: Text = ""
    description: Text = ""
    required: bool = False
    default: (
        bool | float | Text | Annotated[tuple[Text, ...], Field(max_length=MAX_ITEMS)] | None
    ) = None
    multiple: bool = False
    sensitive: bool = False


class PlatformCommand(RegistryModel):
    """What one platform starts instead."""

    command: Text | None = None
    args: Texts | None = None
    env: dict[ShortText, Text] = Field(default={}, max_length=MAX_ITEMS)


class BundleCommand(PlatformCommand):
    """How a bundle is started."""

    platform_overrides: dict[ShortText, PlatformCommand] = Field(default={}, max_length=8)


class BundleServer(RegistryModel):
    """The server in a bundle."""

    type: Literal["node", "python", "binary", "uv"]
    entry_point: Text = ""
    mcp_config: BundleCommand | None = None


class BundleCompatibility(RegistryModel):
    """Where a bundle runs."""

    platforms: tuple[ShortText, ...] = ()


class BundleManifest(RegistryModel):
    """What a bundle says of itself."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    version: ShortText
    description: Text = ""
    server: BundleServer
    user_config: dict[ShortText, BundleOption] = Field(default={}, max_length=MAX_ITEMS)
    compatibility: BundleCompatibility = BundleCompatibility()


def read_manifest(folder: Path) -> BundleManifest:
    """Return the manifest of an unpacked bundle; raises UnusableServer."""
    try:
        with (folder / "manifest.json").open("rb") as file:
            data = file.read(MAX_SERVER_JSON_BYTES + 1)
    except OSError:
        raise UnusableServer("it is no bundle: it has no manifest.json") from None
    try:
        manifest = BundleManifest.model_validate(decode_object(data, "its manifest"))
    except ValidationError as error:
        raise UnusableServer(f"its manifest cannot be used: {describe_problem(error)}") from None
    platforms = manifest.compatibility.platforms
    if platforms and sys.platform not in platforms:
        raise UnusableServer(f"it runs on {', '.join(platforms)}, not on {sys.platform}")
    return manifest


def list_bundle_values(manifest: BundleManifest) -> list[AskedValue]:
    """Return what a bundle asks for."""
    return [_to_asked(name, option) for name, option in manifest.user_config.items()]


def _to_asked(name: str, option: BundleOption) -> AskedValue:
    kind = option.type if option.type in ("number", "boolean") else "string"
    if option.type in ("directory", "file"):
        kind = "filepath"
    defaults: tuple[str, ...] = ()
    if isinstance(option.default, tuple):
        defaults = option.default
    elif isinstance(option.default, bool):
        defaults = (str(option.default).lower(),)
    elif isinstance(option.default, int | float):
        defaults = (f"{option.default:g}",)
    elif isinstance(option.default, str):
        defaults = (option.default,)
    return AskedValue(
        name,
        option.description or option.title,
        option.required,
        option.sensitive,
        tuple(_fill_folders(text) for text in defaults),
        (),
        kind,
        option.multiple,
    )


def plan_bundle(manifest: BundleManifest, folder: Path, values: Values) -> LaunchPlan:
    """Return the entry that starts an unpacked bundle; raises UnusableServer."""
    server = manifest.server
    config = server.mcp_config or _make_default_command(server)
    override = config.platform_overrides.get(sys.platform, PlatformCommand())
    args = override.args if override.args is not None else config.args or ()
    words = [word for text in args for word in _fill(text, folder, values)]
    command = _fill_one(override.command or config.command or "", folder, values)
    environment = {
        name: _fill_one(text, folder, values)
        for name, text in {**config.env, **override.env}.items()
        if not _is_left_out(text, values)
    }
    _check_environment(environment, folder)
    entry: dict[str, Any] = {
        "command": _check_command(server, command, words, folder),
        "args": words,
        "cwd": str(folder),
    }
    if environment:
        entry["env"] = environment
    return LaunchPlan(entry)


def _make_default_command(server: BundleServer) -> BundleCommand:
    place = "${__dirname}/" + server.entry_point
    if server.type == "uv":
        return BundleCommand(command="uv", args=("run", "--directory", "${__dirname}", place))
    if server.type == "binary":
        return BundleCommand(command=place)
    return BundleCommand(command={"node": "node"}.get(server.type, "python3"), args=(place,))


def _check_command(server: BundleServer, command: str, words: Sequence[str], folder: Path) -> str:
    """Return the program to start: the runtime of its type with a file of the bundle, or a file of
    the bundle itself. Raises UnusableServer."""
    if server.type == "binary":
        return str(_find_inside(command, folder))
    if command not in _RUNTIMES[server.type]:
        raise UnusableServer(
            f"a bundle of type {server.type} wants to start {command[:100]!r}, which is neither "
            "its runtime nor in the bundle: no hash would cover what runs"
        )
    if server.type == "uv":
        if tuple(words[:3]) != ("run", "--directory", str(folder)) or len(words) < 4:
            raise UnusableServer("a bundle of type uv is not started by uv run --directory")
        _find_inside(words[3], folder)
    elif server.type == "python" and words[:1] == ["-m"]:
        if not _MODULE.fullmatch("".join(words[1:2])):
            raise UnusableServer("its python -m names no module")
    else:
        _find_inside("".join(words[:1]), folder)
    return "python3" if server.type == "python" else command


def _find_inside(text: str, folder: Path) -> Path:
    """Return the path of a file of the bundle; raises UnusableServer."""
    path = (folder / text).resolve()
    if not text or not path.is_relative_to(folder.resolve()):
        raise UnusableServer(f"it starts {text[:100]!r}, which is not in the bundle")
    if not path.is_file():
        raise UnusableServer(f"it starts {text[:100]!r}, which is missing in the bundle")
    return path


def _check_environment(environment: Mapping[str, str], folder: Path) -> None:
    for name, text in environment.items():
        if name in _LOADER_VARIABLES:
            for part in text.split(":"):
                if not (folder / part).resolve().is_relative_to(folder.resolve()):
                    raise refuse_variable(name)
        elif REDIRECTING_VARIABLE.fullmatch(name) or not re.fullmatch(r"[A-Za-z_]\w{0,127}", name):
            raise refuse_variable(name)


def _is_left_out(text: str, values: Values) -> bool:
    """Return whether a text is a value that was not given."""
    return any(name not in values for name in _list_options(text))


def _list_options(text: str) -> list[str]:
    found = _PLACEHOLDER.findall(text)
    return [name.removeprefix("user_config.") for name in found if name.startswith("user_config.")]


def _fill(text: str, folder: Path, values: Values) -> list[str]:
    """Return the words that an argument becomes: one, or one for each of several values."""
    options = _list_options(text)
    if any(name not in values for name in options):
        return []
    whole = _PLACEHOLDER.fullmatch(text)
    if whole is not None and options:
        return list(values[options[0]])
    return [_fill_one(text, folder, values)]


def _fill_one(text: str, folder: Path, values: Values) -> str:
    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if name == "__dirname":
            return str(folder)
        if name.startswith("user_config."):
            return " ".join(values.get(name.removeprefix("user_config."), ()))
        return _find_folder(name)

    return _check_filled(_PLACEHOLDER.sub(fill, text), text)


def _fill_folders(text: str) -> str:
    return _check_filled(_PLACEHOLDER.sub(lambda match: _find_folder(match[1]), text), text)


def _check_filled(filled: str, text: str) -> str:
    # What is left of a placeholder after one pass is no accident.
    if "${" in _PLACEHOLDER.sub("", text):
        raise UnusableServer(f"it contains a placeholder that cannot be read: {text[:100]!r}")
    return filled


def _find_folder(name: str) -> str:
    home = Path.home()
    folders = {
        "HOME": home,
        "DESKTOP": home / "Desktop",
        "DOCUMENTS": home / "Documents",
        "DOWNLOADS": home / "Downloads",
    }
    if name in folders:
        return str(folders[name])
    if name in ("pathSeparator", "/"):
        return "\\" if sys.platform == "win32" else "/"
    raise UnusableServer(
        f"it contains the placeholder ${{{name[:60]}}}, which bundles do not have: a configuration "
        "could take it for a variable of this machine or a command to run"
    )
