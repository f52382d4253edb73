"""Notes: a notebook in memory while the gateway runs; the only demo server that holds state."""

import threading
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field

from portico.demo import make_tool

MAX_NOTES = 1_000
EXCERPT_CHARS = 80

Id = Annotated[int, Field(ge=1, description="The note's number.")]
Title = Annotated[str, Field(min_length=1, max_length=200, description="A short title.")]
Body = Annotated[str, Field(max_length=20_000, description="The text.")]
Tags = Annotated[list[str], Field(max_length=20, description="Words to find it by.")]
Note = dict[str, Any]


class Notebook:
    """Notes by number. The lock is needed because tools run in threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes: dict[int, Note] = {}
        self._last = 0

    def create_note(
        self,
        title: Title,
        body: Body = "",
        tags: Tags = [],  # noqa: B006 - never changed
    ) -> dict[str, Any]:
        """Write a new note and return its number."""
        with self._lock:
            if len(self._notes) >= MAX_NOTES:
                raise ValueError(f"the notebook is full ({MAX_NOTES} notes); delete some first")
            self._last += 1
            note = {"id": self._last, "title": title, "body": body, "tags": tags}
            self._notes[self._last] = {**note, "changed": _format_now()}
            return {"id": self._last, "notes": len(self._notes)}

    def list_notes(
        self,
        tag: Annotated[str | None, Field(description="Only notes with this tag.")] = None,
        limit: Annotated[
            int, Field(ge=1, le=MAX_NOTES, description="Most notes to return, newest first.")
        ] = 50,
    ) -> list[dict[str, Any]]:
        """List the notes, newest first, each with its title, tags and first words."""
        with self._lock:
            newest_first = list(self._notes.values())[::-1]
        found = [
            note
            for note in newest_first
            if tag is None or tag.casefold() in [one.casefold() for one in note["tags"]]
        ]
        return [_summarize(note) for note in found[:limit]]

    def read_note(self, id: Id) -> dict[str, Any]:
        """Read one note whole."""
        with self._lock:
            return self._get_note(id)

    def search_notes(
        self,
        query: Annotated[
            str, Field(min_length=1, max_length=200, description="Words that must all occur.")
        ],
    ) -> list[dict[str, Any]]:
        """Find notes that contain all of the given words in title, text or tags."""
        words = query.casefold().split()
        with self._lock:
            newest_first = list(self._notes.values())[::-1]
        found: list[Note] = []
        for note in newest_first:
            everything = " ".join((note["title"], note["body"], *note["tags"])).casefold()
            if all(word in everything for word in words):
                found.append(note)
        return [_summarize(note) for note in found]

    def update_note(
        self,
        id: Id,
        title: Annotated[Title | None, Field(description="New title; default: as it is.")] = None,
        body: Annotated[
            Body | None, Field(description="New text in place of the old; default: as it is.")
        ] = None,
        tags: Annotated[
            Tags | None, Field(description="New tags in place of the old; default: as they are.")
        ] = None,
    ) -> dict[str, Any]:
        """Overwrite the title, text or tags of a note."""
        new = {"title": title, "body": body, "tags": tags, "changed": _format_now()}
        with self._lock:
            given = {key: value for key, value in new.items() if value is not None}
            self._notes[id] = {**self._get_note(id), **given}
            return self._notes[id]

    def delete_note(self, id: Id) -> dict[str, Any]:
        """Delete a note for good."""
        with self._lock:
            note = self._get_note(id)
            del self._notes[id]
            return {"deleted": note["title"], "notes": len(self._notes)}

    def _get_note(self, id: int) -> Note:
        if id not in self._notes:
            known = ", ".join(map(str, sorted(self._notes)[-10:]))
            hint = f"there are: {known}" if known else "the notebook is empty"
            raise ValueError(f"there is no note {id}; {hint}")
        return self._notes[id]


def _summarize(note: Note) -> dict[str, Any]:
    excerpt = " ".join(note["body"].split())
    if len(excerpt) > EXCERPT_CHARS:
        excerpt = f"{excerpt[:EXCERPT_CHARS]}…"
    return {**{key: note[key] for key in ("id", "title", "tags")}, "excerpt": excerpt}


def _format_now() -> str:
    return datetime.now(UTC).replace(microsecond=0).isoformat()


_NOTEBOOK = Notebook()

TOOLS = (
    make_tool("Create a note", _NOTEBOOK.create_note, read_only=False, idempotent=False),
    make_tool("List notes", _NOTEBOOK.list_notes),
    make_tool("Read a note", _NOTEBOOK.read_note),
    make_tool("Search notes", _NOTEBOOK.search_notes),
    make_tool("Update a note", _NOTEBOOK.update_note, read_only=False, destructive=True),
    make_tool("Delete a note", _NOTEBOOK.delete_note, read_only=False, destructive=True),
)
