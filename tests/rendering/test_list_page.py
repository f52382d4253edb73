"""Pages of long lists: what is listed is made for one page only."""

from portico.rendering.cursor import PAGE_SIZE, make_list_page


def test_only_the_items_of_a_page_are_made():
    shown: list[int] = []

    def show(item: int) -> str:
        shown.append(item)
        return str(item)

    first = make_list_page("m", "items", range(PAGE_SIZE + 10), "v", {}, render=show)
    assert shown == list(range(PAGE_SIZE))
    then = make_list_page(
        "m", "items", range(PAGE_SIZE + 10), "v", {"cursor": first["nextCursor"]}, render=show
    )
    assert then == {"items": [str(number) for number in range(PAGE_SIZE, PAGE_SIZE + 10)]}
