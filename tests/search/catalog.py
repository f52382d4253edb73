"""A small catalog for search tests."""

from portico.search import SearchDocument, compute_fingerprint


def document(id_: str, description: str = "", **fields: object) -> SearchDocument:
    server, name = id_.split(".", 1)
    words = {"server": server, "name": name, "description": description, **fields}
    hash_ = compute_fingerprint(repr(sorted(words.items())))
    return SearchDocument(id=id_, group=server, hash=hash_, **words)  # pyright: ignore[reportArgumentType]


CATALOG = (
    document(
        "github.create_issue",
        "Create a new issue in a repository.",
        parameters=("owner", "repo", "title"),
    ),
    document("github.list_issues", "List the issues of a repository.", enums=("open", "closed")),
    document("github.create_pull_request", "Open a pull request from one branch to another."),
    document("gitlab.create_issue", "Create a new issue in a GitLab project."),
    document("redis.delete", "Delete a Redis key.", parameters=("key",)),
    document(
        "redis.rpush", "Append a value to the end of a list.", parameter_text="The name of the list"
    ),
    document("files.readTextFile", "Read a file as text.", title="Read Text File"),
    document("files.list_directory", "List what a folder holds."),
    document("search.search", "Search the web."),
    document("amap.maps_weather", "根据城市名称查询指定城市的天气"),
    document("cafe.menu", "La carte du café, à jour."),
    document("mail.send", "Send an e-mail.", tags=("communication",), category="office"),
)
