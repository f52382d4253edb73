"""Files of npm and PyPI packages whose hash an entry gives: fetched, checked, kept by their hash.

What is started then is that very file; its dependencies come from the index as ever.
"""

import html
import re
import shutil
from pathlib import Path, PurePosixPath
from urllib.parse import quote, urljoin, urlsplit

from portico.json_text import json_codec
from portico.json_text.json_codec import to_object
from portico.registry.downloads import (
    RegistryUnavailable,
    download_file,
    fetch_bytes,
    open_client,
)
from portico.registry.package_runtimes import INDEXES, PackageFile, normalize_name
from portico.registry.server_json import RegistryPackage, UnusableServer

PACKAGES_FOLDER = "packages"
_MAX_METADATA_BYTES = 8 * 2**20
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


async def fetch_package_file(package: RegistryPackage, data_folder: Path) -> PackageFile | None:
    """Return the checked file of a package; None where its entry gives no hash.

    Raises UnusableServer where no file of the package has the hash, RegistryUnavailable.
    """
    wanted = package.fileSha256.lower()
    if not wanted:
        return None
    folder = data_folder / PACKAGES_FOLDER
    if package.registryType == "pypi":
        url = await _find_pypi_file(package, wanted)
        program = ""
    else:
        url, program = await _find_npm_file(package)
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
    return PackageFile(str(target), program)


async def _find_npm_file(package: RegistryPackage) -> tuple[str | None, str]:
    """Return the address of a package's file, and the program in it that `npx` would choose."""
    name = quote(package.identifier, safe="@")
    url = f"{INDEXES['npm']}/{name}/{quote(package.version, safe='')}"
    try:
        metadata = to_object(json_codec.loads(await _fetch(url, "application/json")))
    except (ValueError, RecursionError):
        raise RegistryUnavailable(f"{url} answers no JSON") from None
    own = package.identifier.rpartition("/")[2]
    programs = list(to_object(metadata.get("bin"))) or [own]
    program = own if own in programs or len(programs) > 1 else programs[0]
    if not _PROGRAM.fullmatch(program):
        raise UnusableServer(f"its program has an unusable name: {program[:60]!r}")
    tarball = to_object(metadata.get("dist")).get("tarball")
    return (tarball if isinstance(tarball, str) else None), program


async def _find_pypi_file(package: RegistryPackage, wanted: str) -> str | None:
    """Return the address of the file with this hash, from the index that pip reads (PEP 503)."""
    page = f"{INDEXES['pypi']}/simple/{normalize_name(package.identifier)}/"
    body = (await _fetch(page, "text/html")).decode("utf-8", "replace")
    at = body.find(f"#sha256={wanted}")
    start = body.rfind('href="', 0, max(at, 0))
    if at < 0 or start < 0:
        return None
    return urljoin(page, html.unescape(body[start + len('href="') : at]))


async def _fetch(url: str, accept: str) -> bytes:
    async with open_client() as client:
        status, body = await fetch_bytes(client, url, _MAX_METADATA_BYTES, accept)
    if status == 404:
        raise UnusableServer(f"there is no such package or version ({url})")
    if status != 200:
        raise RegistryUnavailable(f"{url} answers {status}")
    return body
