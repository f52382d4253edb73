"""Colors: sRGB in and out; luminance and mixing are computed in linear light."""

import colorsys
import re
from typing import Annotated, Any, Literal

from pydantic import Field

from portico.demo.tool_factory import make_read_only_tool

Rgb = tuple[int, int, int]
Form = Literal["hex", "rgb", "hsl", "hsv"]
Scheme = Literal[
    "complementary", "analogous", "triadic", "tetradic", "split_complementary", "shades", "tints"
]

Color = Annotated[
    str,
    Field(
        max_length=64,
        description="#1e90ff, #fff, rgb(30, 144, 255), hsl(210, 100%, 56%) or a CSS name.",
    ),
]

_NAMES = {
    "black": "000000", "white": "ffffff", "red": "ff0000", "lime": "00ff00", "blue": "0000ff",
    "yellow": "ffff00", "cyan": "00ffff", "magenta": "ff00ff", "silver": "c0c0c0", "gray": "808080",
    "maroon": "800000", "olive": "808000", "green": "008000", "purple": "800080", "teal": "008080",
    "navy": "000080", "orange": "ffa500", "gold": "ffd700", "pink": "ffc0cb", "hotpink": "ff69b4",
    "crimson": "dc143c", "tomato": "ff6347", "coral": "ff7f50", "salmon": "fa8072",
    "chocolate": "d2691e", "sienna": "a0522d", "brown": "a52a2a", "tan": "d2b48c",
    "beige": "f5f5dc", "ivory": "fffff0", "khaki": "f0e68c", "lavender": "e6e6fa",
    "violet": "ee82ee", "orchid": "da70d6", "indigo": "4b0082", "slateblue": "6a5acd",
    "royalblue": "4169e1", "dodgerblue": "1e90ff", "skyblue": "87ceeb", "steelblue": "4682b4",
    "turquoise": "40e0d0", "aquamarine": "7fffd4", "seagreen": "2e8b57", "forestgreen": "228b22",
    "limegreen": "32cd32", "yellowgreen": "9acd32", "darkgreen": "006400", "darkred": "8b0000",
    "darkblue": "00008b", "darkorange": "ff8c00", "darkgray": "a9a9a9", "lightgray": "d3d3d3",
    "dimgray": "696969", "slategray": "708090", "mintcream": "f5fffa", "rebeccapurple": "663399",
}  # fmt: skip
_HEX = re.compile(r"#?([0-9a-f]{3}|[0-9a-f]{6})", re.IGNORECASE)
_FUNCTION = re.compile(
    r"(rgb|hsl|hsv)\(\s*(-?[\d.]+)(?:deg)?[\s,]+([\d.]+)%?[\s,]+([\d.]+)%?\s*\)", re.IGNORECASE
)


def _parse_color(text: str) -> Rgb:
    plain = text.strip().lower().replace("grey", "gray")
    if plain in _NAMES:
        plain = _NAMES[plain]
    if found := _HEX.fullmatch(plain):
        if len(found[1]) == 6:
            digits = found[1]
        else:
            digits = "".join(digit * 2 for digit in found[1])
        return (int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:], 16))
    if found := _FUNCTION.fullmatch(plain):
        try:
            first, second, third = (float(part) for part in found.groups()[1:])
        except ValueError:
            raise ValueError(f"{text!r} is not a colour") from None
        if found[1] == "rgb" and all(0 <= part <= 255 for part in (first, second, third)):
            return (round(first), round(second), round(third))
        if found[1] != "rgb" and second <= 100 and third <= 100:
            hue = first % 360 / 360
            share = second / 100
            last = third / 100
            if found[1] == "hsl":
                parts = colorsys.hls_to_rgb(hue, last, share)
            else:
                parts = colorsys.hsv_to_rgb(hue, share, last)
            return _to_rgb(*parts)
    raise ValueError(
        f"{text!r} is not a colour; write #1e90ff, rgb(30, 144, 255), hsl(210, 100%, 56%) or "
        "a CSS name"
    )


def _to_rgb(red: float, green: float, blue: float) -> Rgb:
    return (round(red * 255), round(green * 255), round(blue * 255))


def _to_hex(color: Rgb) -> str:
    return "#" + "".join(f"{part:02x}" for part in color)


def _format_color(color: Rgb, form: Form) -> str:
    red, green, blue = (part / 255 for part in color)
    match form:
        case "hex":
            return _to_hex(color)
        case "rgb":
            return f"rgb({color[0]}, {color[1]}, {color[2]})"
        case "hsl":
            hue, light, share = colorsys.rgb_to_hls(red, green, blue)
            return f"hsl({round(hue * 360) % 360}, {round(share * 100)}%, {round(light * 100)}%)"
        case "hsv":
            hue, share, value = colorsys.rgb_to_hsv(red, green, blue)
            return f"hsv({round(hue * 360) % 360}, {round(share * 100)}%, {round(value * 100)}%)"


def _to_linear(part: int) -> float:
    share = part / 255
    if share <= 0.04045:
        return share / 12.92
    return ((share + 0.055) / 1.055) ** 2.4


def _to_gamma(light: float) -> float:
    if light <= 0.0031308:
        return light * 12.92
    return 1.055 * light ** (1 / 2.4) - 0.055


def convert_color(
    color: Color, to: Annotated[Form | None, Field(description="Default: every form.")] = None
) -> Any:
    """Convert a colour between hex, RGB, HSL and HSV."""
    known = _parse_color(color)
    if to:
        forms: tuple[Form, ...] = (to,)
    else:
        forms = ("hex", "rgb", "hsl", "hsv")
    return {form: _format_color(known, form) for form in forms}


def _compute_luminance(color: Rgb) -> float:
    red, green, blue = (_to_linear(part) for part in color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def check_contrast(foreground: Color, background: Color) -> dict[str, Any]:
    """Compute the contrast ratio of text on a background and whether it passes WCAG AA and AAA."""
    lights = sorted(
        (_compute_luminance(_parse_color(foreground)), _compute_luminance(_parse_color(background)))
    )
    exact = (lights[1] + 0.05) / (lights[0] + 0.05)
    return {
        "ratio": round(exact, 2),
        "aa_normal_text": exact >= 4.5,
        "aa_large_text": exact >= 3,
        "aaa_normal_text": exact >= 7,
        "aaa_large_text": exact >= 4.5,
    }


def mix_colors(
    first: Color,
    second: Color,
    share: Annotated[float, Field(ge=0, le=1, description="How much of the second colour.")] = 0.5,
) -> str:
    """Mix two colours in linear light and return the result as hex."""
    parts = (
        _to_gamma(_to_linear(first_part) * (1 - share) + _to_linear(second_part) * share)
        for first_part, second_part in zip(_parse_color(first), _parse_color(second), strict=True)
    )
    return _to_hex(_to_rgb(*parts))


def make_palette(
    color: Color,
    scheme: Annotated[
        Scheme, Field(description="How the colours relate to the first.")
    ] = "complementary",
    count: Annotated[int, Field(ge=2, le=12, description="Number of shades or tints.")] = 5,
) -> list[str]:
    """Make a colour palette from one colour: complementary, analogous, triadic, shades, tints …"""
    base = _parse_color(color)
    hue, light, share = colorsys.rgb_to_hls(*(part / 255 for part in base))
    if scheme in ("shades", "tints"):
        if scheme == "shades":
            end = 0.0
        else:
            end = 1.0
        steps = (light + (end - light) * index / count for index in range(count))
        return [_to_hex(_to_rgb(*colorsys.hls_to_rgb(hue, step, share))) for step in steps]
    hue_shifts = {
        "complementary": (0, 180), "analogous": (0, 30, 330), "triadic": (0, 120, 240),
        "tetradic": (0, 90, 180, 270), "split_complementary": (0, 150, 210),
    }[scheme]  # fmt: skip
    return [
        _to_hex(_to_rgb(*colorsys.hls_to_rgb((hue + shift / 360) % 1, light, share)))
        for shift in hue_shifts
    ]


def name_color(color: Color) -> dict[str, Any]:
    """Find the CSS name nearest to a colour."""
    wanted = _parse_color(color)

    def compute_distance(digits: str) -> float:
        red, green, blue = (
            one - other for one, other in zip(wanted, _parse_color(digits), strict=True)
        )
        # Weighted by how well the eye distinguishes them.
        return 2 * red**2 + 4 * green**2 + 3 * blue**2

    name = min(_NAMES, key=lambda name: (compute_distance(_NAMES[name]), name))
    return {"name": name, "hex": f"#{_NAMES[name]}", "exact": _to_hex(wanted) == f"#{_NAMES[name]}"}


TOOLS = (
    make_read_only_tool("Convert a colour", convert_color),
    make_read_only_tool("Check contrast", check_contrast),
    make_read_only_tool("Mix two colours", mix_colors),
    make_read_only_tool("Make a palette", make_palette),
    make_read_only_tool("Name a colour", name_color),
)
