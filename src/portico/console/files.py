"""The console's files, read once and served from memory.

Everything but the page has an address with the digest of all files, and is kept by browsers for
good; the page itself is asked for each time. Modules of third parties are kept as they were
published: the names by which they import each other become addresses when they are served, which an
import map would do only with inline script. The page has the empty frame of every screen, which is
drawn while the modules arrive.
"""

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

FOLDER = Path(__file__).parent / "static"
ROOT = "/console"
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
THIRD_PARTY_MODULES = {
    "preact": "./preact.mjs",
    "preact/hooks": "./preact-hooks.mjs",
    "@preact/signals-core": "./signals-core.mjs",
}
"""Files of modules that third parties import by name."""
_NAMED_IMPORT = re.compile(rb'(\bfrom\s*)"([^"./][^"]*)"')
_PAGE = "index.html"
_EARLY = "early.js"
"""The only script that is no module: it runs before the page is drawn."""
_VERSION_MARK = b"{version}"
_PRELOAD_MARK = b"{preload}"
_IMMUTABLE = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class StaticFile:
    """One file as it is served."""

    content: bytes
    compressed: bytes
    media_type: str

    @classmethod
    def from_content(cls, content: bytes, media_type: str) -> "StaticFile":
        return cls(content, gzip.compress(content, mtime=0), media_type)


class ConsoleFiles:
    """ASGI application: the console's page at every address, and its files. Blocks when made."""

    def __init__(self, folder: Path = FOLDER) -> None:
        contents = read_files(folder)
        digest = hashlib.sha256()
        for name, content in sorted(contents.items()):
            digest.update(f"{name} {len(content)} ".encode() + content)
        self.version = digest.hexdigest()[:16]
        base = f"{ROOT}/static/{self.version}"
        self._files = {
            f"{base}/{name}": StaticFile.from_content(content, MEDIA_TYPES[Path(name).suffix])
            for name, content in contents.items()
            if Path(name).suffix in MEDIA_TYPES
        }
        scripts = (path for path in self._files if path.endswith((".js", ".mjs")))
        modules = sorted(path for path in scripts if path != f"{base}/{_EARLY}")
        preload = "\n".join(f'<link rel="modulepreload" href="{path}">' for path in modules)
        page = contents[_PAGE].replace(_VERSION_MARK, self.version.encode())
        page = page.replace(_PRELOAD_MARK, preload.encode())
        self._page = StaticFile.from_content(page, "text/html; charset=utf-8")
        self._page_tag = f'"{self.version}"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._respond(scope)(scope, receive, send)

    def _respond(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            return Response("Use GET.", 405, {**SECURITY_HEADERS, "Allow": "GET, HEAD"})
        path: str = scope["path"]
        request_headers = Headers(scope=scope)
        if (file := self._files.get(path)) is not None:
            return _make_response(file, request_headers, {"Cache-Control": _IMMUTABLE})
        if path.startswith(f"{ROOT}/static/"):
            return Response("There is no such file.", 404, SECURITY_HEADERS)
        headers = {"Cache-Control": "no-cache", "ETag": self._page_tag}
        if request_headers.get("if-none-match") == self._page_tag:
            return Response(status_code=304, headers={**SECURITY_HEADERS, **headers})
        return _make_response(self._page, request_headers, headers)


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files by their path in the folder, imports resolved."""
    contents: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            contents[name] = path.read_bytes()
            if path.suffix == ".mjs":
                contents[name] = resolve_named_imports(contents[name])
    return contents


def resolve_named_imports(
    module: bytes, addresses: Mapping[str, str] = THIRD_PARTY_MODULES
) -> bytes:
    """Return a module with addresses instead of the names it imports; raises KeyError for a name
    that has none."""
    return _NAMED_IMPORT.sub(
        lambda found: found[1] + f'"{addresses[found[2].decode()]}"'.encode(), module
    )


def _make_response(file: StaticFile, request: Headers, headers: Mapping[str, str]) -> Response:
    all_headers = {**SECURITY_HEADERS, **headers, "Vary": "Accept-Encoding"}
    content = file.content
    if "gzip" in request.get("accept-encoding", ""):
        all_headers["Content-Encoding"] = "gzip"
        content = file.compressed
    return Response(content, headers=all_headers, media_type=file.media_type)
