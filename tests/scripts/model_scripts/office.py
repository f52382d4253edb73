"""The servers that the scripts of models call: issues, tables, files, mail and weather.

Results are JSON in a text block without an output schema, as most servers answer.
"""

import json
from typing import Any

from portico.library.settings import Servers

Record = dict[str, Any]

_ISSUES: list[Record] = [
    {
        "id": number,
        "title": title,
        "state": state,
        "labels": labels,
        "assignee": assignee,
        "comments": comments,
        "created_at": created_at,
    }
    for number, title, state, labels, assignee, comments, created_at in [
        (1, "Login page is slow", "open", ["bug", "performance"], "ada", 3, "2026-01-05T09:00:00Z"),
        (2, "Add dark mode", "open", ["feature"], None, 8, "2026-01-12T10:30:00Z"),
        (3, "Crash on empty upload", "open", ["bug"], "linus", 1, "2026-02-01T08:15:00Z"),
        (4, "Update the manual", "closed", ["docs"], "ada", 0, "2025-12-20T16:45:00Z"),
        (5, "Export to CSV fails", "open", ["bug", "export"], "ada", 5, "2026-02-10T12:00:00Z"),
        (6, "Rename the page", "closed", ["feature"], "grace", 2, "2026-01-30T07:20:00Z"),
    ]
]
_TABLES: dict[str, list[Record]] = {
    "customers": [
        {"id": 1, "name": "Acme", "country": "Germany"},
        {"id": 2, "name": "Globex", "country": "France"},
        {"id": 3, "name": "Initech", "country": "Germany"},
    ],
    "orders": [
        {"id": 101, "customer_id": 1, "amount": 250.0, "status": "paid"},
        {"id": 102, "customer_id": 2, "amount": 99.5, "status": "paid"},
        {"id": 103, "customer_id": 1, "amount": 40.0, "status": "open"},
        {"id": 104, "customer_id": 3, "amount": 310.25, "status": "paid"},
        {"id": 105, "customer_id": 2, "amount": 15.0, "status": "cancelled"},
    ],
}
_FILES = {
    "/config.json": '{"retries": 3, "hosts": ["a.example.com", "b.example.com"], "debug": false}',
    "/notes.txt": "alpha\nbeta\ngamma\n",
    "/data.csv": "name,score\nada,91\nlinus,78\ngrace,85\n",
    "/log.txt": "2026-02-01 10:00:01 INFO started\n"
    "2026-02-01 10:00:05 ERROR disk full\n"
    "2026-02-01 10:01:00 WARN retry\n"
    "2026-02-01 10:02:13 ERROR timeout after 30s\n",
}
_FORECASTS = {
    "Paris": [(12, 5), (14, 6), (11, 4)],
    "Tokyo": [(9, 2), (10, 3), (12, 4)],
    "Oslo": [(-2, -8), (0, -6), (-1, -7)],
}
_MESSAGES: list[Record] = [
    {"id": "m1", "from": "ada@example.com", "subject": "Invoice 2026-14"},
    {"id": "m2", "from": "linus@example.com", "subject": "Lunch?"},
    {"id": "m3", "from": "grace@example.com", "subject": "Invoice overdue"},
]


class Office:
    """Servers with the same data at every start; what changes something is counted."""

    def __init__(self) -> None:
        self.writes: list[str] = []

    @property
    def servers(self) -> Servers:
        return {
            "issues": [self.list_issues, self.get_issue, self.create_issue, self.add_comment],
            "data-server": [self.list_tables, self.query],
            "files": [self.list_files, self.read_file],
            "weather": [self.get_forecast],
            "mail": [self.search_messages, self.send_message],
        }

    def list_issues(self, state: str = "open", label: str | None = None) -> Any:
        """List the issues in a state, optionally those with a label."""
        found = [issue for issue in _ISSUES if issue["state"] == state]
        return json.dumps([issue for issue in found if label is None or label in issue["labels"]])

    def get_issue(self, id: int) -> Any:
        """Get an issue by its number."""
        return json.dumps(_ISSUES[id - 1])

    def create_issue(self, title: str, body: str = "", labels: list[str] | None = None) -> Any:
        """Create an issue."""
        self.writes.append("create_issue")
        return json.dumps({"id": len(_ISSUES) + len(self.writes), "title": title, "state": "open"})

    def add_comment(self, issue_id: int, body: str) -> Any:
        """Add a comment to an issue."""
        self.writes.append("add_comment")
        return json.dumps({"issue_id": issue_id, "body": body})

    def list_tables(self) -> Any:
        """List the tables of the database."""
        return json.dumps([*_TABLES])

    def query(self, table: str, limit: int = 100) -> Any:
        """Read the rows of a table."""
        return json.dumps(_TABLES[table][:limit])

    def list_files(self, folder: str = "/") -> Any:
        """List the files in a folder."""
        return json.dumps([path for path in _FILES if path.startswith(folder)])

    def read_file(self, path: str) -> Any:
        """Read a text file."""
        return _FILES[path]

    def get_forecast(self, city: str, days: int = 3) -> Any:
        """Get the forecast of a city for some days, in degrees Celsius."""
        if city not in _FORECASTS:
            raise ValueError(f"There is no forecast for {city}.")
        temperatures = _FORECASTS[city][:days]
        return json.dumps(
            {"city": city, "days": [{"high": high, "low": low} for high, low in temperatures]}
        )

    def search_messages(self, query: str, limit: int = 10) -> Any:
        """Search messages by the words of their subject."""
        found = [one for one in _MESSAGES if query.lower() in one["subject"].lower()]
        return json.dumps(found[:limit])

    def send_message(self, to: str, subject: str, body: str = "") -> Any:
        """Send a message."""
        self.writes.append("send_message")
        return json.dumps({"id": f"s{len(self.writes)}", "status": "sent"})
