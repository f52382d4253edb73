"""Pages of long lists: what is listed is made for one page only."""

from portico.disclosure.pages import PAGE, page


def test_only_the_items_of_a_page_are_made():
    shown: list[int] = []

    def show(item: int) -> str:
        shown.append(item)
        return str(item)

    first = page("m", "items", range(PAGE + 10), "v", {}, show=show)
    assert shown == list(range(PAGE))
    then = page("m", "items", range(PAGE + 10), "v", {"cursor": first["nextCursor"]}, show=show)
    assert then == {"items": [str(number) for number in range(PAGE, PAGE + 10)]}
