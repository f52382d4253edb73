"""Notes: a notebook in memory while the gateway runs; the only demo server that holds state."""

import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field

from portico.demo.tool_factory import make_additive_tool, make_destructive_tool, make_read_only_tool

MAX_NOTES = 1_000
EXCERPT_CHARS = 80

Id = Annotated[int, Field(ge=1, description="The note's number.")]
Title = Annotated[str, Field(min_length=1, max_length=200, description="A short title.")]
Body = Annotated[str, Field(max_length=20_000, description="The text.")]
Tags = Annotated[list[str], Field(max_length=20, description="Words to find it by.")]


@dataclass(frozen=True)
class Note:
    """One note."""

    id: int
    title: str
    body: str
    tags: tuple[str, ...]
    changed: str

    def to_summary(self) -> dict[str, Any]:
        flat = " ".join(self.body.split())
        if len(flat) <= EXCERPT_CHARS:
            excerpt = flat
        else:
            excerpt = f"{flat[:EXCERPT_CHARS]}…"
        return {"id": self.id, "title": self.title, "tags": list(self.tags), "excerpt": excerpt}

    def to_data(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "title": self.title,
            "body": self.body,
            "tags": list(self.tags),
            "changed": self.changed,
        }


class Notebook:
    """Notes by number. The lock is needed because tools run in threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes: dict[int, Note] = {}
        self._last = 0

    def create_note(self, title: Title, body: Body = "", tags: Tags = []) -> dict[str, Any]:  # noqa: B006 - never changed
        """Write a new note and return its number."""
        with self._lock:
            if len(self._notes) >= MAX_NOTES:
                raise ValueError(f"the notebook is full ({MAX_NOTES} notes); delete some first")
            self._last += 1
            self._notes[self._last] = Note(self._last, title, body, tuple(tags), _format_now())
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
            found = [
                note
                for note in self._notes.values()
                if tag is None or tag.casefold() in _fold_tags(note.tags)
            ]
        return [note.to_summary() for note in sorted(found, key=lambda note: -note.id)[:limit]]

    def read_note(self, id: Id) -> dict[str, Any]:
        """Read one note whole."""
        with self._lock:
            return self._get_note(id).to_data()

    def search_notes(
        self,
        query: Annotated[
            str, Field(min_length=1, max_length=200, description="Words that must all occur.")
        ],
    ) -> list[dict[str, Any]]:
        """Find notes that contain all of the given words in title, text or tags."""
        words = query.casefold().split()
        with self._lock:
            notes = list(self._notes.values())
        found: list[tuple[int, Note]] = []
        for note in notes:
            title = note.title.casefold()
            everything = " ".join((title, note.body.casefold(), *_fold_tags(note.tags)))
            if all(word in everything for word in words):
                found.append((sum(word in title for word in words), note))
        return [
            note.to_summary() for _, note in sorted(found, key=lambda pair: (-pair[0], -pair[1].id))
        ]

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
        with self._lock:
            note = self._get_note(id)
            changed = replace(
                note,
                title=note.title if title is None else title,
                body=note.body if body is None else body,
                tags=note.tags if tags is None else tuple(tags),
                changed=_format_now(),
            )
            self._notes[id] = changed
            return changed.to_data()

    def delete_note(self, id: Id) -> dict[str, Any]:
        """Delete a note for good."""
        with self._lock:
            note = self._get_note(id)
            del self._notes[id]
            return {"deleted": note.title, "notes": len(self._notes)}

    def _get_note(self, id: int) -> Note:
        if id not in self._notes:
            known = ", ".join(map(str, sorted(self._notes)[-10:]))
            raise ValueError(
                f"there is no note {id}; "
                + (f"there are: {known}" if known else "the notebook is empty")
            )
        return self._notes[id]


def _format_now() -> str:
    return datetime.now(UTC).replace(microsecond=0).isoformat()


def _fold_tags(tags: tuple[str, ...]) -> list[str]:
    return [tag.casefold() for tag in tags]


_NOTEBOOK = Notebook()

TOOLS = (
    make_additive_tool("Create a note", _NOTEBOOK.create_note),
    make_read_only_tool("List notes", _NOTEBOOK.list_notes),
    make_read_only_tool("Read a note", _NOTEBOOK.read_note),
    make_read_only_tool("Search notes", _NOTEBOOK.search_notes),
    make_destructive_tool("Update a note", _NOTEBOOK.update_note),
    make_destructive_tool("Delete a note", _NOTEBOOK.delete_note),
)
