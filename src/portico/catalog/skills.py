"""Skills of servers (extension `io.modelcontextprotocol/skills`, SEP-2640) as entries of the
catalog, beside the tools. Pure.

An entry of `skills/list` becomes a read-only tool `skill:NAME`, so that it is pinned, scanned,
ruled, searched, described and recorded like any other. To call it is to read it: without arguments
its instructions, with `file` one of its files. What is read has to be what the entry says, by size
and digest.
"""

import base64
import binascii
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from portico.catalog.tool import Tool, quote_text
from portico.errors import INTERNAL_ERROR, InvalidArguments, RemoteError
from portico.json_text.json_codec import to_list, to_object, to_text
from portico.upstream.backend import InitializeInfo, Raw

SKILLS_EXTENSION = "io.modelcontextprotocol/skills"
PREFIX = "skill:"
SKILL_KEY = "portico/skill"
"""Key in the `_meta` of such a tool: the entry of `skills/list`. No server can set it."""
ENTRY_FILE = "SKILL.md"
MAX_FILES = 512
MAX_BYTES = 16 * 1024**2
MAX_LISTED_FILES = 40
"""Files that are named below the instructions."""
_DYNAMIC = "dynamic"


@dataclass(frozen=True)
class Skill:
    """One skill; `files` are its files with digest and size by their path in it, or None where its
    server generates them."""

    root: str
    """URI of its folder, with a slash at the end."""
    files: Mapping[str, Raw] | None


def declares_skills(info: InitializeInfo) -> bool:
    return SKILLS_EXTENSION in to_object(info.capabilities.get("extensions"))


def is_skill(tool: Tool) -> bool:
    return tool.upstream_name.startswith(PREFIX) and SKILL_KEY in to_object(
        tool.definition.get("_meta")
    )


def strip_skill_mark(items: Iterable[Any]) -> list[Any]:
    """Return tools that a server lists, without the mark of a skill."""
    return [_strip(item) if isinstance(item, dict) else item for item in items]


def _strip(item: Raw) -> Raw:
    meta = item.get("_meta")
    if not isinstance(meta, dict) or SKILL_KEY not in meta:
        return item
    return {**item, "_meta": {key: value for key, value in meta.items() if key != SKILL_KEY}}


def make_skill_tools(entries: Iterable[Any]) -> tuple[list[Raw], list[str]]:
    """Return the definitions of a server's skills, and why others are left out."""
    found: list[Raw] = []
    warnings: list[str] = []
    for number, entry in enumerate(entries, start=1):
        problem = _find_problem(entry)
        if problem:
            warnings.append(f"skill {number} was left out: {problem}")
        else:
            found.append(entry)
    counts = Counter(entry["frontmatter"]["name"] for entry in found)
    return [_make_tool(entry, counts) for entry in found], warnings


def _find_problem(entry: Any) -> str:
    """Return why an entry cannot be used; empty where it can."""
    if not isinstance(entry, dict):
        return "it is no object"
    uri = entry.get("uri")
    frontmatter = to_object(entry.get("frontmatter"))
    name = frontmatter.get("name")
    if not isinstance(name, str) or not isinstance(frontmatter.get("description"), str):
        return "its frontmatter has no name and description"
    if not isinstance(uri, str) or not uri.endswith(f"/{name}/{ENTRY_FILE}"):
        return f"its address does not end with its name and {ENTRY_FILE}"
    resources = entry.get("resources")
    if resources == _DYNAMIC:
        return ""
    if not isinstance(resources, list) or len(resources) > MAX_FILES:
        return f"it has no list of up to {MAX_FILES} files"
    root = uri.removesuffix(ENTRY_FILE)
    size = 0
    for file in resources:
        if not _is_file(file, root):
            return "one of its files has no address within it, digest and size"
        size += file["size"]
    if size > MAX_BYTES:
        return f"its files have more than {MAX_BYTES:,} bytes"
    if uri not in (file["uri"] for file in resources):
        return f"{ENTRY_FILE} is not among its files"
    return ""


def _is_file(file: Any, root: str) -> bool:
    if not isinstance(file, dict):
        return False
    uri, digest, size = file.get("uri"), file.get("digest"), file.get("size")
    if not isinstance(uri, str) or not uri.startswith(root):
        return False
    if {"", ".", ".."} & set(uri.removeprefix(root).split("/")):
        return False
    if not isinstance(digest, str) or not digest.startswith("sha256:"):
        return False
    return isinstance(size, int) and not isinstance(size, bool) and size >= 0


def _make_tool(entry: Raw, counts: Mapping[str, int]) -> Raw:
    frontmatter = entry["frontmatter"]
    name = frontmatter["name"]
    if counts[name] > 1:  # told apart by the folders that they are in
        name = entry["uri"].removesuffix(f"/{ENTRY_FILE}").partition("://")[2]
    file: Raw = {
        "type": "string",
        "description": f"Path of one of its files; without it {ENTRY_FILE}, the instructions.",
    }
    return {
        "name": PREFIX + name,
        "title": f"Skill {frontmatter['name']}",
        "description": frontmatter["description"],
        "inputSchema": {
            "type": "object",
            "properties": {"file": file},
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True},
        "_meta": {SKILL_KEY: entry},
    }


def get_entry(tool: Tool) -> Raw:
    """Return the entry of `skills/list` that a tool was made of."""
    return to_object(to_object(tool.definition.get("_meta")).get(SKILL_KEY))


def parse_skill(tool: Tool) -> Skill:
    entry = get_entry(tool)
    root = to_text(entry.get("uri")).removesuffix(ENTRY_FILE)
    resources = entry.get("resources")
    if not isinstance(resources, list):
        return Skill(root, None)
    files = {file["uri"].removeprefix(root): file for file in to_list(resources)}
    return Skill(root, files)


def map_files(tools: Iterable[Tool]) -> dict[str, str]:
    """Return the name of the skill that each file belongs to, by the file's URI; of nested skills
    the innermost."""
    found: dict[str, tuple[int, str]] = {}
    for tool in tools:
        if not is_skill(tool):
            continue
        skill = parse_skill(tool)
        for path in skill.files or (ENTRY_FILE,):
            depth = (len(skill.root), tool.name)
            found[skill.root + path] = max(depth, found.get(skill.root + path, depth))
    return {uri: name for uri, (_, name) in found.items()}


def select_file(skill: Skill, arguments: Any) -> str:
    """Return the path of the file that a call asks for; raises InvalidArguments."""
    path = to_object(arguments).get("file") or ENTRY_FILE
    if not isinstance(path, str):
        raise InvalidArguments("`file` is the path of a file")
    path = path.removeprefix("./")
    if skill.files is None:
        if {"", ".", ".."} & set(path.split("/")):
            raise InvalidArguments("`file` is a path within the skill")
    elif path not in skill.files:
        names = ", ".join(list(skill.files)[:MAX_LISTED_FILES])
        raise InvalidArguments(
            f"the skill has no file {quote_text(path)}", advice=f"It has: {names}."
        )
    return path


def to_result(skill: Skill, path: str, read: Mapping[str, Any]) -> Raw:
    """Return what `resources/read` answered as the result of a tool; raises RemoteError where it is
    not what the skill's entry says."""
    uri = skill.root + path
    parts = [part for part in to_list(read.get("contents")) if isinstance(part, dict)]
    part = next((one for one in parts if one.get("uri") == uri), parts[0] if parts else None)
    if part is None:
        raise RemoteError(INTERNAL_ERROR, "the server answered without the file")
    text = part.get("text")
    body = _get_bytes(part)
    if skill.files is not None:
        expected = skill.files[path]
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if len(body) != expected["size"] or digest != expected["digest"]:
            raise RemoteError(
                INTERNAL_ERROR,
                f"the file {path} is not what its server listed, by size and digest;"
                " it was not passed on",
            )
    if not isinstance(text, str):
        return {"content": [{"type": "resource", "resource": {**part, "uri": uri}}]}
    content: list[Raw] = [{"type": "text", "text": text}]
    others = [name for name in skill.files or () if name != ENTRY_FILE]
    if path == ENTRY_FILE and others:
        shown = ", ".join(others[:MAX_LISTED_FILES])
        if len(others) > MAX_LISTED_FILES:
            shown += f", and {len(others) - MAX_LISTED_FILES} more"
        content.append({"type": "text", "text": f"Files, each read by `file`: {shown}"})
    return {"content": content}


def _get_bytes(part: Mapping[str, Any]) -> bytes:
    text = part.get("text")
    if isinstance(text, str):
        return text.encode(errors="surrogatepass")
    try:
        return base64.b64decode(to_text(part.get("blob")), validate=True)
    except (ValueError, binascii.Error):
        raise RemoteError(INTERNAL_ERROR, "the server sent a file that cannot be read") from None
