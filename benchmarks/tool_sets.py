"""Tools and questions with known answers: where they lie, and how they are read.

Tools are JSON lines `{id, server, name, description, input_schema}`, perhaps with `title`,
`server_title` and
`server_description`; or recorded servers, `{slug, initialize, tools}` with what each answered.
Questions are
`{id, query, groups}`, perhaps with `style`: each group lists tools of which any one will do, and no
group at all means
that no tool here serves. Either file may be gzipped.
"""

import gzip
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from portico.search import SearchDocument, compute_fingerprint, extract_schema_text

_GZIP = b"\x1f\x8b"
_QUERIES = re.compile(r"queries(?:[_-](?P<part>.+?))?\.jsonl(?:\.gz)?")
_TOOLS = ("tools.jsonl", "tools.jsonl.gz", "servers.jsonl", "servers.jsonl.gz")


@dataclass(frozen=True, slots=True)
class Source:
    """Describes where a set is read from."""

    name: str
    tools: Path
    queries: Path
    family: str = ""
    """The folder it was found under: sets of one family have a mean of their own."""


@dataclass(frozen=True, slots=True)
class Question:
    """A query and what answers it."""

    id: str | int
    text: str
    groups: tuple[frozenset[str], ...]
    style: str = ""


@dataclass(frozen=True, slots=True)
class ToolSet:
    """A catalog and questions to it."""

    name: str
    tools: tuple[Mapping[str, Any], ...]
    questions: tuple[Question, ...]

    @property
    def documents(self) -> list[SearchDocument]:
        """The tools as search takes them."""
        return [document(tool) for tool in self.tools]


class UnreadableSet(Exception):
    """A file is not what it should be; the message says which, and what is expected there."""


def discover(folders: Iterable[Path]) -> tuple[list[Source], list[Path]]:
    """The sets in these folders, by path, and the files of queries to which no tools belong.

    A file `queries.jsonl` is named after its folder, `queries_dev.jsonl` is the folder's `dev`. Its
    tools lie beside it, or in the neighbouring folder that the name begins with: `livemcp_agent`
    shares those of `livemcp`.
    """
    found: list[Source] = []
    orphans: list[Path] = []
    for folder in folders:
        for queries in sorted(folder.resolve().rglob("queries*.jsonl*")):
            if (match := _QUERIES.fullmatch(queries.name)) is None or _has_plain_copy(queries):
                continue
            name = "_".join(filter(None, (queries.parent.name, match["part"])))
            if (tools := _tools_for(queries.parent)) is None:
                orphans.append(queries)
            else:
                found.append(Source(name, tools, queries, folder.resolve().name))
    return list(_named_apart(found)), orphans


def tools_in(folder: Path) -> Path | None:
    """The file of tools that lies in a folder."""
    return next((folder / name for name in _TOOLS if (folder / name).is_file()), None)


def read_set(source: Source) -> ToolSet:
    """All of a set."""
    return ToolSet(source.name, read_tools(source.tools), read_questions(source.queries))


def reduce_set(tools: ToolSet, questions: int, size: int) -> ToolSet:
    """A small set of the same kind: some questions, the tools that answer them, and others up to
    `size`."""
    some = tools.questions[:: -(-len(tools.questions) // questions)]
    needed = {id_ for question in some for group in question.groups for id_ in group}
    others = [tool["id"] for tool in tools.tools if tool["id"] not in needed]
    room = max(1, size - len(needed))
    kept = needed | set(others[:: max(1, -(-len(others) // room))])
    return replace(
        tools, tools=tuple(tool for tool in tools.tools if tool["id"] in kept), questions=some
    )


def read_tools(path: Path) -> tuple[Mapping[str, Any], ...]:
    """The tools of a file, recorded servers taken apart."""
    try:
        return tuple(tool for line in _lines(path) for tool in _tools_of(line))
    except (KeyError, TypeError, AttributeError) as error:
        raise UnreadableSet(
            f"{path}: not a list of tools ({error!r}). Expected {{id, server, name, …}}."
        ) from error


def read_questions(path: Path) -> tuple[Question, ...]:
    """The questions of a file."""
    try:
        return tuple(
            Question(
                line.get("id", number),
                line["query"],
                tuple(map(frozenset, line["groups"])),
                line.get("style") or "",
            )
            for number, line in enumerate(_lines(path), 1)
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise UnreadableSet(
            f"{path}: not a list of queries ({error!r}). Expected {{id, query, groups}}."
        ) from error


def document(tool: Mapping[str, Any]) -> SearchDocument:
    """A tool of a set as the catalog would hand it to search."""
    schema = extract_schema_text(tool.get("input_schema"))
    title, description = tool.get("title") or "", tool.get("description") or ""
    introduction = " ".join(
        filter(None, (tool.get("server_title"), tool.get("server_description")))
    )
    said = (
        title,
        description,
        introduction,
        *schema.parameters,
        schema.descriptions,
        *schema.enums,
    )
    return SearchDocument(
        id=tool["id"],
        hash=compute_fingerprint(tool["id"], *said),
        group=tool.get("server") or "",
        name=tool["name"],
        title=title,
        server=tool.get("server") or "",
        server_text=introduction,
        description=description,
        parameters=schema.parameters,
        parameter_text=schema.descriptions,
        enums=schema.enums,
    )


def _tools_for(folder: Path) -> Path | None:
    """The tools beside the queries, or those of the neighbour with the longest name that this one's
    begins with."""
    parts = re.split(r"(?=[_-])", folder.name)
    names = ["".join(parts[:length]) for length in range(len(parts), 0, -1)]
    places = (tools_in(folder.with_name(name)) for name in names)
    return next((place for place in places if place is not None), None)


def _has_plain_copy(path: Path) -> bool:
    return path.suffix == ".gz" and path.with_suffix("").is_file()


def _named_apart(sources: Sequence[Source]) -> Iterator[Source]:
    """Names are what `--set` and files of ranks go by: the second of a name gets a number."""
    seen: dict[str, int] = {}
    for source in sources:
        seen[source.name] = seen.get(source.name, 0) + 1
        yield (
            source
            if seen[source.name] == 1
            else replace(source, name=f"{source.name}-{seen[source.name]}")
        )


def _tools_of(line: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    if "tools" not in line:
        _ = line["id"], line["name"]
        return (line,)
    greeting = line.get("initialize")
    return (
        {
            "id": f"{line['slug']}/{tool['name']}",
            "server": line["slug"],
            "server_title": _text(greeting, "serverInfo", "title"),
            "server_description": _text(greeting, "serverInfo", "description")
            or _text(greeting, "instructions"),
            "name": tool["name"],
            "title": tool.get("title") or _text(tool, "annotations", "title"),
            "description": tool.get("description") or "",
            "input_schema": tool.get("inputSchema"),
        }
        for tool in line["tools"]
    )


def _text(value: Any, *path: str) -> str:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _lines(path: Path) -> Iterator[Any]:
    try:
        body = path.read_bytes()
        # By its first bytes, because not every gzipped file says so in its name.
        lines = (gzip.decompress(body) if body.startswith(_GZIP) else body).splitlines()
    except (OSError, EOFError) as error:
        raise UnreadableSet(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise UnreadableSet(f"{path}:{number}: not JSON ({error})") from error
