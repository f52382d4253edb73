"""Bundles for tests: a real server in a zip, and hostile archives."""

import io
import json
import stat
import zipfile
from collections.abc import Mapping
from typing import Any

MANIFEST: dict[str, Any] = {
    "manifest_version": "0.3",
    "name": "greeter",
    "version": "1.0.0",
    "description": "Greets.",
    "author": {"name": "Ana"},
    "server": {
        "type": "python",
        "entry_point": "server/main.py",
        "mcp_config": {
            "command": "python3",
            "args": ["${__dirname}/server/main.py", "--word", "${user_config.word}"],
            "env": {"GREETER_TOKEN": "${user_config.token}"},
        },
    },
    "user_config": {
        "word": {
            "type": "string",
            "title": "Word",
            "description": "To greet with",
            "default": "hi",
        },
        "token": {"type": "string", "title": "Token", "sensitive": True, "required": True},
    },
}
SERVER = """
import json, os, sys

def answer(request):
    method = request["method"]
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "greeter", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": "greet", "description": "Greet a person.",
                           "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        text = f"{sys.argv[2]} {len(os.environ['GREETER_TOKEN'])}"
        return {"content": [{"type": "text", "text": text}]}
    return None

for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request)
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "no such method"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
"""


def make_bundle(
    manifest: Mapping[str, Any] | bytes = MANIFEST,
    files: Mapping[str, str | bytes] | None = None,
    *,
    members: Mapping[zipfile.ZipInfo, str | bytes] | None = None,
) -> bytes:
    """Return an archive with a manifest, files by name, and members as they are given."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
        text = manifest if isinstance(manifest, bytes) else json.dumps(manifest)
        archive.writestr("manifest.json", text)
        for name, data in (files if files is not None else {"server/main.py": SERVER}).items():
            archive.writestr(name, data)
        for member, data in (members or {}).items():
            archive.writestr(member, data)
    return body.getvalue()


def make_member(name: str, kind: int = stat.S_IFREG) -> zipfile.ZipInfo:
    """Return a member of an archive with any name and kind."""
    member = zipfile.ZipInfo(name)
    member.filename = name  # without what ZipInfo would make of it
    member.external_attr = (kind | 0o644) << 16
    return member
