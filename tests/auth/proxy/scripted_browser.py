"""A browser that a script uses: follows redirects, keeps cookies, presses the buttons of forms."""

from html.parser import HTMLParser
from types import TracebackType
from typing import Self
from urllib.parse import urljoin

import httpx2

TIMEOUT_S = 240.0
_MAX_STEPS = 30


class Page(HTMLParser):
    """What a page lets a person do."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self.buttons: list[tuple[str, str]] = []
        self.refresh = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.action = values["action"]
        elif tag == "input":
            self.fields[values["name"]] = values.get("value", "")
        elif tag == "button":
            self.buttons.append((values.get("name", ""), values.get("value", "")))
        elif tag == "meta" and values.get("http-equiv") == "refresh":
            self.refresh = values["content"].partition("url=")[2]


class ScriptedBrowser:
    """A person who is `user` at the identity provider, and presses `decision`."""

    def __init__(self, user: str = "ana", decision: str = "allow", credential: str = "") -> None:
        self.user = user
        self.decision = decision
        self.credential = credential
        """What it writes where a page asks for a key."""
        self.visited: list[str] = []
        self.consents = 0
        """Consent pages that were answered."""
        self.http = httpx2.AsyncClient(timeout=TIMEOUT_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.http.aclose()

    async def visit(self, url: str, until: str = "") -> httpx2.Response:
        """Follow a URL to an address that begins with `until`, which is not asked for, or to the
        page where nothing leads on. The response has the last URL in `request.url`."""
        reply = await self.http.get(self._identify(url))
        for _ in range(_MAX_STEPS):
            self.visited.append(str(reply.request.url))
            target = reply.headers.get("location", "") if reply.is_redirect else ""
            page = Page(reply.text)
            if target or page.refresh:
                target = urljoin(str(reply.request.url), target or page.refresh)
                if until and target.startswith(until):
                    return httpx2.Response(200, request=httpx2.Request("GET", target))
                reply = await self.http.get(self._identify(target))
            elif page.action:
                reply = await self.press(reply, self.decision)
            else:
                return reply
        raise AssertionError(f"no end of pages: {self.visited}")

    async def press(self, reply: httpx2.Response, decision: str, **changes: str) -> httpx2.Response:
        """Send the form of a page."""
        page = Page(reply.text)
        self.consents += 1
        url = urljoin(str(reply.request.url), page.action)
        origin = f"{reply.request.url.scheme}://{reply.request.url.netloc.decode()}"
        if reply.headers.get("referrer-policy") == "no-referrer":
            origin = "null"  # as browsers do (Fetch, "append a request Origin header")
        form = {**page.fields, "decision": decision, **changes}
        if "credential" in form:
            form["credential"] = self.credential
        return await self.http.post(url, data=form, headers={"Origin": origin})

    def _identify(self, url: str) -> str:
        """Say who signs in, as a person would at the identity provider's own form."""
        if "code_challenge" in url and "login_hint" not in url and "/oauth/" not in url:
            return f"{url}&login_hint={self.user}"
        return url
