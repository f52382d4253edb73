"""Files of npm and PyPI packages whose hash an entry gives: fetched, checked, kept by their hash.

What is started then is that very file; its dependencies come from the index as ever.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

from portico.json_text import json_codec
from portico.json_text.json_codec import to_list, to_object
from portico.registry.downloads import (
    RegistryUnavailable,
    download_file,
    fetch_bytes,
    open_client,
)
from portico.registry.package_runtimes import INDEXES, PackageFile
from portico.registry.server_json import RegistryPackage, UnusableServer

PACKAGES_FOLDER = "packages"
_MAX_METADATA_BYTES = 8 * 2**20


async def fetch_package_file(package: RegistryPackage, data_folder: Path) -> PackageFile | None:
    """Return the checked file of a package; None where its entry gives no hash.

    Raises UnusableServer where no file of the package has the hash, RegistryUnavailable.
    """
    wanted = package.fileSha256.lower()
    if not wanted:
        return None
    folder = data_folder / PACKAGES_FOLDER
    metadata = await _fetch_metadata(package)
    url = _find_npm_file(metadata)
    if package.registryType == "pypi":
        url = _find_pypi_file(metadata, wanted)
    if url is None:
        raise UnusableServer(
            f"no file of {package.identifier} {package.version} has the hash that its entry gives: "
            f"{wanted[:64]}",
            advice="Do not use it. Tell whoever published the entry.",
        )
    target = folder / wanted / PurePosixPath(urlsplit(url).path).name
    # Named by the index, not by a stranger: it may be a mirror of a private network.
    path = await download_file(url, folder, wanted, allow_private=True)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.move(path, target)
    return PackageFile(str(target))


async def _fetch_metadata(package: RegistryPackage) -> Mapping[str, Any]:
    name = quote(package.identifier, safe="@")
    version = quote(package.version, safe="")
    url = f"{INDEXES['npm']}/{name}/{version}"
    if package.registryType == "pypi":
        url = f"{INDEXES['pypi']}/pypi/{name}/{version}/json"
    async with open_client() as client:
        status, body = await fetch_bytes(client, url, _MAX_METADATA_BYTES)
    if status == 404:
        raise UnusableServer(f"there is no {package.identifier} {package.version} ({url})")
    if status != 200:
        raise RegistryUnavailable(f"{url} answers {status}")
    try:
        return to_object(json_codec.loads(body))
    except (ValueError, RecursionError):
        raise RegistryUnavailable(f"{url} answers no JSON") from None


def _find_npm_file(metadata: Mapping[str, Any]) -> str | None:
    url = to_object(metadata.get("dist")).get("tarball")
    return url if isinstance(url, str) else None


def _find_pypi_file(metadata: Mapping[str, Any], wanted: str) -> str | None:
    files: Iterable[dict[str, Any]] = map(to_object, to_list(metadata.get("urls")))
    for file in files:
        url = file.get("url")
        if to_object(file.get("digests")).get("sha256") == wanted and isinstance(url, str):
            return url
    return None
