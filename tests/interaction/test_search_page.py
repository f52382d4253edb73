"""The page about searching is tried, not believed: what it quotes is what an agent is answered."""

import re
from pathlib import Path

from portico.testing import connect
from tests.interaction.fake_servers import ask
from tests.interaction.test_search import encoded_gateway

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "searching.md"
SAYS = re.compile(r"^(No tool here|Nearest server|Unlikely|Next:)", re.MULTILINE)


async def test_the_answer_that_nothing_fits_reads_as_the_page_shows_it() -> None:
    (quoted,) = re.findall(
        r"```text\n(No tool here.*?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    (query,) = re.findall(r"seems to do '(.+)'\.", quoted)
    async with encoded_gateway() as gateway, connect(gateway) as client:
        answer = await ask(client, "search_tools", query=query)
        assert answer.splitlines()[0] == quoted.splitlines()[0]
        assert SAYS.findall(answer) == SAYS.findall(quoted)
        shown = set(re.findall(r"^[a-z]+\.\w+(?=\()", quoted, re.MULTILINE))
        assert shown
        assert shown <= gateway.catalog.snapshot.tools.keys()
