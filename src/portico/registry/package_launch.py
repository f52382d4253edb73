"""Makes an entry of the configuration from a package or a remote address of a `server.json`. Pure.

A command is a list of words that no shell reads; each template becomes part of one word.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from portico.registry.asked_values import (
    AskedValue,
    Values,
    fill_template,
    list_asked,
    name_argument,
    require_text,
)
from portico.registry.package_runtimes import (
    PACKAGE_KINDS,
    REDIRECTING_VARIABLE,
    CommandWord,
    PackageFile,
    plan_runtime,
    refuse_variable,
)
from portico.registry.server_json import (
    Argument,
    NamedInput,
    RegistryPackage,
    RegistryTransport,
    TemplateInput,
    UnusableServer,
)


@dataclass(frozen=True)
class LaunchPlan:
    """How a server would be entered into the configuration."""

    entry: dict[str, Any]
    address: str = ""
    """The address of a remote server, with its variables filled in."""
    remarks: tuple[str, ...] = ()


def choose_package(
    packages: Sequence[RegistryPackage], wanted: str | None, available: Mapping[str, bool]
) -> RegistryPackage:
    """Return the package to use: of the wanted kind, else the first that can be started here.

    `available` says of each kind whether its runtime is here. Raises UnusableServer.
    """
    usable = [
        package
        for package in packages
        if package.registryType in PACKAGE_KINDS and package.transport.type == "stdio"
    ]
    if wanted is not None:
        usable = [package for package in usable if package.registryType == wanted]
    if not usable:
        kinds = ", ".join(sorted({package.registryType for package in packages})) or "none"
        raise UnusableServer(
            f"it has no package that Portico starts: its packages are {kinds}"
            + (f", and {wanted} was asked for" if wanted else ""),
            advice="Portico starts npm, pypi, oci and mcpb packages that speak over stdio.",
        )
    for package in usable:
        if available.get(package.registryType, True):
            return package
    return usable[0]


def list_package_values(package: RegistryPackage) -> list[AskedValue]:
    """Return what a package asks for."""
    arguments = [
        one for one in (*package.runtimeArguments, *package.packageArguments) if not _is_switch(one)
    ]
    inputs: list[tuple[str, TemplateInput]] = [
        (one.name, one) for one in package.environmentVariables
    ]
    inputs += [(name_argument(one), one) for one in arguments]
    return list_asked(inputs)


def list_remote_values(remote: RegistryTransport) -> list[AskedValue]:
    """Return what a remote address asks for."""
    inputs: list[tuple[str, TemplateInput]] = [
        ("url", TemplateInput(value=remote.url, variables=remote.variables))
    ]
    inputs += [(one.name, one) for one in remote.headers]
    return list_asked(inputs)


def plan_package(
    package: RegistryPackage, values: Values, file: PackageFile | None = None
) -> LaunchPlan:
    """Return the entry that starts a package (npm, pypi or oci); raises UnusableServer."""
    environment = _build_environment(package.environmentVariables, values)
    wanted = list(_build_words(package.runtimeArguments, values))
    runtime = plan_runtime(package, wanted, tuple(environment), file)
    words = [word.text for word in _build_words(package.packageArguments, values)]
    entry: dict[str, Any] = {
        "command": runtime.program,
        "args": [*runtime.options, runtime.package, *words],
    }
    if environment:
        entry["env"] = environment
    return LaunchPlan(entry, remarks=runtime.remarks)


def plan_remote(
    remote: RegistryTransport, values: Values, written: Values, *, allow_private: bool
) -> LaunchPlan:
    """Return the entry of a remote server; raises UnusableServer.

    The address is checked with the `values`; the entry has them as they are `written`.
    """
    template = TemplateInput(value=remote.url, variables=remote.variables)
    url = require_text(fill_template(template, values), "address")
    check_address(url, allow_private=allow_private)
    entry: dict[str, Any] = {"url": require_text(fill_template(template, written), "address")}
    if remote.type == "sse":
        entry = {"type": "sse", **entry}
    if headers := _build_environment(remote.headers, written, is_header=True):
        entry["headers"] = headers
    return LaunchPlan(entry, address=url)


def check_address(url: str, *, allow_private: bool) -> None:
    """Raise UnusableServer unless a stranger may name this address."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        raise UnusableServer("its address is no URL") from None
    del port
    if "{" in parts.netloc or not host or re.search(r"[\s\\]", url):
        raise UnusableServer("its address is no URL: its host cannot be read")
    if parts.username is not None or parts.password is not None:
        raise UnusableServer("its address contains a user name")
    is_local = is_private_host(host)
    if parts.scheme != "https" and not (allow_private and is_local and parts.scheme == "http"):
        raise UnusableServer(f"its address is not https: {parts.scheme[:20]}://{host[:100]}")
    if is_local and not allow_private:
        raise UnusableServer(
            f"its address {host[:100]} is of this machine or a private network, which an entry of "
            "a registry may not name",
            advice="If it is right, add it by hand: portico add NAME --url URL",
        )


def is_private_host(host: str) -> bool:
    """Return whether a host is one of this machine or a private network, by its spelling."""
    name = host.strip("[]").rstrip(".").lower()
    try:
        return not ipaddress.ip_address(name).is_global
    except ValueError:
        pass
    if re.fullmatch(r"[0-9.]+|0x[0-9a-f.x]+", name):
        return True  # a number that resolvers read as an address
    return name == "localhost" or name.endswith((".localhost", ".local", ".internal", ".lan"))


def _build_words(arguments: Iterable[Argument], values: Values) -> Iterator[CommandWord]:
    for one in arguments:
        if _is_switch(one):
            yield CommandWord(one.name)
            continue
        name = name_argument(one)
        if one.value is not None:
            filled = fill_template(one, values)
            texts = [] if filled is None else [filled]
            from_user = any(given in values for given in one.variables)
        else:
            texts = list(values.get(name, ()))
            if not one.isRepeated:
                texts = texts[:1]
            from_user = True
        if one.isRequired and not texts:
            raise UnusableServer(f"its argument {name} has no value")
        for text in texts:
            yield from _render_argument(one, text, from_user)


def _is_switch(one: Argument) -> bool:
    """Return whether a required option stands alone: nothing says that it takes a value."""
    if one.type != "named" or not one.isRequired or one.value is not None:
        return False
    return not (one.valueHint or one.default or one.choices or one.placeholder or one.isSecret)


def _render_argument(one: Argument, text: str, from_user: bool) -> Iterator[CommandWord]:
    if one.type == "positional":
        yield CommandWord(text, from_user)
    elif text == "":
        yield CommandWord(one.name)
    elif one.name.startswith("--"):
        yield CommandWord(f"{one.name}={text}", from_user)
    else:
        yield CommandWord(one.name)
        yield CommandWord(text, from_user)


def _build_environment(
    inputs: Iterable[NamedInput], values: Values, *, is_header: bool = False
) -> dict[str, str]:
    built: dict[str, str] = {}
    for one in inputs:
        text = fill_template(one, values)
        if one.value is None:
            text = next(iter(values.get(one.name, ())), None)
        if text is None:
            if one.isRequired:
                raise UnusableServer(f"its {one.name} has no value")
            continue
        if not is_header and REDIRECTING_VARIABLE.fullmatch(one.name):
            raise refuse_variable(one.name)
        built[one.name] = text
    return built
