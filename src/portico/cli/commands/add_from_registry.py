"""The part of `portico add` that knows registries and bundles: what a name, file or URL stands for,
what it asks for, and the entry that it becomes."""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from getpass import getpass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from portico.adoption.adoption_plan import ExistingConfig
from portico.adoption.secret_extraction import VariableNames
from portico.catalog.tool import sanitize_text
from portico.cli.config_change import get_config_data_dir
from portico.cli.exit import print_note
from portico.cli.screen import Screen
from portico.cli.setup_commands import AddOptions
from portico.config_file import to_server_key
from portico.errors import PorticoError
from portico.registry.asked_values import AskedValue, complete_values, parse_given
from portico.registry.bundle import BUNDLES_FOLDER, compute_file_hash, unpack_bundle
from portico.registry.bundle_manifest import list_bundle_values, plan_bundle, read_manifest
from portico.registry.downloads import (
    RegistryUnavailable,
    check_hash,
    check_registry_url,
    download_file,
    fetch_bytes,
    open_client,
)
from portico.registry.package_files import fetch_package_file
from portico.registry.package_launch import (
    LaunchPlan,
    choose_package,
    is_private_host,
    list_package_values,
    list_remote_values,
    plan_package,
    plan_remote,
)
from portico.registry.registry_client import fetch_server
from portico.registry.server_catalogue import ServerCatalogue
from portico.registry.server_json import (
    MAX_SERVER_JSON_BYTES,
    SERVER_NAME,
    RegistryPackage,
    RegistryServer,
    UnusableServer,
    check_server,
    parse_server_json,
)

_PROGRAMS = {"npm": "npx", "pypi": "uvx", "oci": "docker"}
_PROGRAM_ADVICE = {
    "npx": "Install Node.js, which has it.",
    "uvx": "Install uv, which has it: pip install uv",
    "docker": "Install Docker, or choose another package with --package.",
}
_EMPTY_WORDS = re.compile(r"(?:^|[-_.])(?:mcp|servers?)(?=$|[-_.])", re.IGNORECASE)


@dataclass(frozen=True)
class SourcedServer:
    """A server that is described elsewhere, as it would be entered here."""

    name: str
    entry: Mapping[str, Any]
    """Secrets are variables in it."""
    secrets: Mapping[str, str]
    described: str
    """What it is, for a person."""
    remarks: tuple[str, ...] = ()


def names_source(text: str) -> bool:
    """Return whether the first word of `add` says where a server comes from."""
    return _is_file(text) or "://" in text or "/" in text


def _is_file(text: str) -> bool:
    is_named = text.endswith((".mcpb", ".json")) and "://" not in text
    return is_named or text.startswith(("./", "../", "/", "~", ".\\"))


def can_ask(screen: Screen) -> bool:
    """Return whether a person can answer questions here."""
    return not screen.as_json and screen.is_stdout_terminal and sys.stdin.isatty()


class SourceResolver:
    """Reads one description and makes an entry of it."""

    def __init__(self, options: AddOptions, existing: ExistingConfig, screen: Screen) -> None:
        self._options = options
        self._existing = existing
        self._data_folder = get_config_data_dir(existing.config)
        self._variables = VariableNames(os.environ, existing.values)
        self._can_ask = can_ask(screen)

    def resolve(self, text: str) -> SourcedServer:
        """Return the server that a name, file or URL stands for; raises PorticoError."""
        options = self._options
        if _is_file(text):
            path = Path.cwd() / Path(text).expanduser()
            if not path.is_file():
                raise PorticoError(f"there is no file {path}")
            check_hash(compute_file_hash(path), options.sha256 or "", path.name)
            if path.suffix == ".json":
                with path.open("rb") as file:
                    data = file.read(MAX_SERVER_JSON_BYTES + 1)
                return self._resolve_server(parse_server_json(data, path.name), allow_private=False)
            return self._resolve_bundle(path, self._options.as_, path.name)
        if "://" in text:
            return self._resolve_url(text)
        url = check_registry_url(options.registry or self._existing.config.registry.url)
        found = self._look_up(url, text)
        server = check_server(found, f"the entry of {text}")
        if found.get("deprecated"):
            print_note(f"{text} is deprecated, says {url}.")
        is_private = is_private_host(urlsplit(url).hostname or "")
        return self._resolve_server(server, allow_private=is_private)

    def _look_up(self, url: str, name: str) -> dict[str, Any]:
        if not SERVER_NAME.fullmatch(name):
            raise UnusableServer(f"{name[:100]!r} is no name of a server in a registry")
        version = self._options.version

        async def fetch() -> dict[str, Any]:
            async with open_client() as client:
                return await fetch_server(client, url, name, version)

        try:
            return asyncio.run(fetch())
        except RegistryUnavailable as error:
            catalogue = ServerCatalogue(self._data_folder)
            found = catalogue.find_server(name)
            if found is None or version not in ("latest", found["version"]):
                raise
            if catalogue.load_info().url != url:
                raise
            print_note(f"{error.message}. Taken from the last snapshot.")
            return found

    def _resolve_url(self, url: str) -> SourcedServer:
        path = urlsplit(url).path
        # The user named it: any host may be, but what it leads to is checked.
        is_private = is_private_host(urlsplit(url).hostname or "")
        if path.endswith(".json"):

            async def fetch() -> bytes:
                async with open_client() as client:
                    status, body = await fetch_bytes(client, url, MAX_SERVER_JSON_BYTES)
                if status != 200:
                    raise RegistryUnavailable(f"{url} answers {status}")
                return body

            server = parse_server_json(asyncio.run(fetch()), url)
            return self._resolve_server(server, allow_private=is_private)
        if not path.endswith(".mcpb"):
            raise PorticoError(
                f"{url} is neither a bundle (.mcpb) nor a server.json",
                advice="A remote server is added by its name here: portico add NAME --url URL",
            )
        return self._resolve_download(url, self._options.sha256 or "", allow_private=is_private)

    def _resolve_download(self, url: str, sha256: str, *, allow_private: bool) -> SourcedServer:
        folder = self._data_folder / BUNDLES_FOLDER
        downloaded = asyncio.run(download_file(url, folder, sha256, allow_private=allow_private))
        try:
            return self._resolve_bundle(downloaded, self._options.as_, url)
        finally:
            downloaded.unlink(missing_ok=True)

    def _resolve_bundle(self, path: Path, name: str | None, source: str) -> SourcedServer:
        folder = unpack_bundle(path, self._data_folder / BUNDLES_FOLDER)
        manifest = read_manifest(folder)
        values, written, secrets = self._collect_values(
            name or _make_key(manifest.name), list_bundle_values(manifest)
        )
        plan_bundle(manifest, folder, values)  # checked as it would be started
        plan = plan_bundle(manifest, folder, written)
        described = (
            f"{manifest.name} {manifest.version}, the bundle {source} (SHA-256 {folder.name})"
        )
        return self._finish(name or _make_key(manifest.name), plan, secrets, described)

    def _resolve_server(self, server: RegistryServer, *, allow_private: bool) -> SourcedServer:
        name = self._options.as_ or _make_key(server.name)
        described = f"{server.name} {server.version}"
        wanted = self._options.package
        has_remote = bool(server.remotes)
        if wanted == "remote" or (wanted is None and has_remote and not server.packages):
            if not has_remote:
                raise UnusableServer(f"{server.name} has no remote address")
            # Streamable HTTP before SSE, which it replaces.
            remote = min(server.remotes, key=lambda one: one.type != "streamable-http")
            values, written, secrets = self._collect_values(name, list_remote_values(remote))
            plan = plan_remote(remote, values, written, allow_private=allow_private)
            return self._finish(name, plan, secrets, f"{described}, at {plan.address}")
        available = {kind: shutil.which(program) is not None for kind, program in _PROGRAMS.items()}
        package = choose_package(server.packages, wanted, available)
        described += f", the {package.registryType} package {package.identifier}"
        if package.registryType == "mcpb":
            if not package.fileSha256:
                raise UnusableServer("its bundle has no hash (fileSha256): anything could come")
            found = self._resolve_download(
                package.identifier, package.fileSha256, allow_private=allow_private
            )
            return replace(found, name=name, described=described)
        return self._resolve_package(name, package, described)

    def _resolve_package(
        self, name: str, package: RegistryPackage, described: str
    ) -> SourcedServer:
        values, written, secrets = self._collect_values(name, list_package_values(package))
        plan_package(package, values)  # refused before anything is fetched
        program = _PROGRAMS[package.registryType]
        if shutil.which(program) is None and not self._options.no_check:
            raise PorticoError(f"{program} is not installed here", advice=_PROGRAM_ADVICE[program])
        file = asyncio.run(fetch_package_file(package, self._data_folder))
        return self._finish(name, plan_package(package, written, file), secrets, described)

    def _collect_values(
        self, server: str, asked: list[AskedValue]
    ) -> tuple[dict[str, list[str]], dict[str, list[str]], dict[str, str]]:
        """Return the values, the same as they are written, and the secrets by their variables."""
        given = parse_given(self._options.set_ or ())
        values = complete_values(asked, given, _ask if self._can_ask else None)
        secrets: dict[str, str] = {}
        written = dict(values)
        for one in asked:
            if not one.is_secret or one.name not in values:
                continue
            names: list[str] = []
            for value in values[one.name]:
                name = self._variables.assign_name(
                    server, one.name, value, allow_unprefixed=one.name.isupper()
                )
                secrets[name] = value
                names.append(f"${{{name}}}")
            written[one.name] = names
        return values, written, secrets

    def _finish(
        self, name: str, plan: LaunchPlan, secrets: Mapping[str, str], described: str
    ) -> SourcedServer:
        entry = dict(plan.entry)
        if self._options.description:
            entry = {"description": self._options.description, **entry}
        return SourcedServer(
            name, {**entry, "trust": "ask"}, secrets, sanitize_text(described), plan.remarks
        )


def _make_key(name: str) -> str:
    """Return a short name for a server after the one it has elsewhere."""
    namespace, _, own = name.rpartition("/")
    short = _EMPTY_WORDS.sub("", own).strip("-_.") or namespace.rpartition(".")[2] or own
    return to_server_key(short.replace(".", "-"))


def _ask(one: AskedValue) -> str:
    words = " ".join(sanitize_text(one.description).split())[:200]
    if words:
        print_note(f"{one.name}: {words}")
    prompt = f"{one.name}{' (not shown)' if one.is_secret else ''}: "
    try:
        return getpass(prompt) if one.is_secret else input(prompt)
    except EOFError:
        raise PorticoError(f"{one.name} was not given", advice="Nothing was written.") from None


def confirm(found: SourcedServer) -> bool:
    """Ask the person whether the server may be started and added."""
    try:
        typed = input(f"Start and add {found.name}? y/N: ")
    except EOFError:
        return False
    return typed.strip().lower() in ("y", "yes")
