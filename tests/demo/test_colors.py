"""Colours convert between forms and are judged as the eye sees them."""

import pytest

from portico.demo import colors


@pytest.mark.parametrize(
    "color", ["#1e90ff", "1E90FF", "rgb(30, 144, 255)", "rgb(30 144 255)", "DodgerBlue"]
)
def test_every_way_to_write_a_colour_is_read(color: str) -> None:
    assert colors.convert_color(color) == {
        "hex": "#1e90ff",
        "rgb": "rgb(30, 144, 255)",
        "hsl": "hsl(210, 100%, 56%)",
        "hsv": "hsv(210, 88%, 100%)",
    }


def test_short_hex_hsl_and_hsv() -> None:
    assert colors.convert_color("#0f8", "rgb") == {"rgb": "rgb(0, 255, 136)"}
    assert colors.convert_color("hsl(120, 100%, 25%)", "hex") == {"hex": "#008000"}
    assert colors.convert_color("hsv(-120deg, 100%, 100%)", "hex") == {"hex": "#0000ff"}
    assert colors.convert_color("grey", "hex") == {"hex": "#808080"}


@pytest.mark.parametrize(
    "color", ["", "blurple", "#12", "rgb(300, 0, 0)", "hsl(0, 200%, 0%)", "rgb(1.1.1, 0, 0)"]
)
def test_what_is_no_colour_is_refused(color: str) -> None:
    with pytest.raises(ValueError, match="is not a colour"):
        colors.convert_color(color)


def test_contrast_follows_wcag() -> None:
    assert colors.check_contrast("black", "white")["ratio"] == 21
    grey = colors.check_contrast("#777777", "#fff")
    assert (grey["ratio"], grey["aa_normal_text"], grey["aa_large_text"]) == (4.48, False, True)


def test_colours_mix_in_linear_light() -> None:
    assert colors.mix_colors("red", "lime") == "#bcbc00"
    assert colors.mix_colors("red", "lime", 0) == "#ff0000"


def test_palettes() -> None:
    assert colors.make_palette("red") == ["#ff0000", "#00ffff"]
    assert colors.make_palette("red", "triadic") == ["#ff0000", "#00ff00", "#0000ff"]
    shades = colors.make_palette("red", "shades", 4)
    assert (len(shades), shades[0], shades[-1]) == (4, "#ff0000", "#400000")
    assert colors.make_palette("black", "tints", 2) == ["#000000", "#808080"]


def test_the_nearest_name() -> None:
    assert colors.name_color("#fe6446") == {"name": "tomato", "hex": "#ff6347", "exact": False}
    assert colors.name_color("#663399")["exact"]
