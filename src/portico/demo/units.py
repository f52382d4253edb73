"""Units: one exact factor for each unit, so a conversion is one division."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field

from portico.demo.tool_factory import make_read_only_tool

Quantity = Literal[
    "length",
    "mass",
    "volume",
    "area",
    "speed",
    "time",
    "data",
    "energy",
    "power",
    "pressure",
    "angle",
    "temperature",
]


@dataclass(frozen=True)
class Unit:
    """A unit: base = value × factor + offset."""

    quantity: Quantity
    factor: Fraction
    offset: Fraction = Fraction(0)


_TABLE: Mapping[Quantity, str] = {
    "length": (
        "m 1, km 1000, cm 0.01, mm 0.001, um 1e-6, nm 1e-9, in 0.0254, ft 0.3048, yd 0.9144, "
        "mi 1609.344, nmi 1852, au 149597870700, ly 9460730472580800"
    ),
    "mass": (
        "kg 1, g 0.001, mg 1e-6, ug 1e-9, t 1000, lb 0.45359237, oz 0.028349523125, st 6.35029318"
    ),
    "volume": (
        "l 1, ml 0.001, cl 0.01, dl 0.1, m3 1000, cm3 0.001, gal_us 3.785411784, gal_uk 4.54609, "
        "qt_us 0.946352946, pt_us 0.473176473, cup_us 0.2365882365, floz_us 0.0295735295625, "
        "tbsp_us 0.01478676478125, tsp_us 0.00492892159375"
    ),
    "area": (
        "m2 1, km2 1e6, cm2 0.0001, ha 10000, acre 4046.8564224, ft2 0.09290304, in2 0.00064516, "
        "mi2 2589988.110336"
    ),
    "speed": "m/s 1, km/h 5/18, mph 0.44704, kn 463/900, ft/s 0.3048",
    "time": "s 1, ms 0.001, us 1e-6, min 60, h 3600, d 86400, wk 604800, yr 31557600",
    "data": (
        "B 1, bit 1/8, kB 1000, MB 1e6, GB 1e9, TB 1e12, KiB 1024, MiB 1048576, GiB 1073741824, "
        "TiB 1099511627776, Mbit 125000, Gbit 125000000"
    ),
    "energy": (
        "J 1, kJ 1000, MJ 1e6, cal 4.184, kcal 4184, Wh 3600, kWh 3600000, BTU 1055.05585262, "
        "eV 1.602176634e-19"
    ),
    "power": "W 1, kW 1000, MW 1e6, hp 745.69987158227022",
    "pressure": (
        "Pa 1, kPa 1000, hPa 100, bar 100000, mbar 100, atm 101325, psi 6894.757293168, "
        "mmHg 133.322387415"
    ),
    "angle": (
        "deg 1, rad 57.29577951308232087679815, grad 0.9, turn 360, arcmin 1/60, arcsec 1/3600"
    ),
    "temperature": "K 1, C 1 273.15, F 5/9 229835/900, R 5/9",
}
_SPELLINGS = {
    "metre": "m", "meter": "m", "kilometre": "km", "kilometer": "km", "centimetre": "cm",
    "centimeter": "cm", "millimetre": "mm", "millimeter": "mm", "inch": "in", "inches": "in",
    "foot": "ft", "feet": "ft", "yard": "yd", "mile": "mi", "nautical mile": "nmi",
    "light year": "ly", "kilogram": "kg", "kilo": "kg", "gram": "g", "milligram": "mg",
    "tonne": "t", "ton": "t", "pound": "lb", "lbs": "lb", "ounce": "oz", "stone": "st",
    "litre": "l", "liter": "l", "millilitre": "ml", "milliliter": "ml", "gallon": "gal_us",
    "gal": "gal_us", "quart": "qt_us", "pint": "pt_us", "cup": "cup_us", "fluid ounce": "floz_us",
    "tablespoon": "tbsp_us", "tbsp": "tbsp_us", "teaspoon": "tsp_us", "tsp": "tsp_us",
    "hectare": "ha", "square metre": "m2", "square meter": "m2", "square foot": "ft2",
    "square feet": "ft2", "kph": "km/h", "kmh": "km/h", "knot": "kn", "second": "s", "sec": "s",
    "millisecond": "ms", "minute": "min", "hour": "h", "hr": "h", "day": "d", "week": "wk",
    "year": "yr", "byte": "B", "kilobyte": "kB", "megabyte": "MB", "gigabyte": "GB",
    "terabyte": "TB", "joule": "J", "calorie": "cal", "kilocalorie": "kcal", "kilowatt hour": "kWh",
    "watt": "W", "kilowatt": "kW", "horsepower": "hp", "pascal": "Pa", "degree": "deg",
    "radian": "rad", "celsius": "C", "°c": "C", "fahrenheit": "F", "°f": "F", "kelvin": "K",
    "rankine": "R", "m²": "m2", "km²": "km2", "m³": "m3", "°": "deg", "µm": "um", "µg": "ug",
    "µs": "us",
}  # fmt: skip


def _build_units() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for quantity, line in _TABLE.items():
        for entry in line.split(", "):
            name, factor, *offset = entry.split()
            units[name] = Unit(
                quantity, Fraction(factor), Fraction(offset[0]) if offset else Fraction(0)
            )
    return units


UNITS: Mapping[str, Unit] = _build_units()
# Case folding turns the micro sign into the Greek letter, so both sides must be folded.
_NAMES = {word.casefold(): name for word, name in _SPELLINGS.items()}
_FOLDED = {name.casefold(): name for name in reversed(UNITS)}

UnitName = Annotated[
    str, Field(max_length=40, description="A unit such as km, lb, gal_us, °F or mile.")
]


def _resolve_unit(name: str) -> str:
    text = name.strip()
    if text in UNITS:
        return text
    folded = text.casefold().replace("_", " ")
    for candidate in (folded, folded.removesuffix("s"), folded.removesuffix("es")):
        if candidate in _NAMES:
            return _NAMES[candidate]
        if candidate in _FOLDED:
            return _FOLDED[candidate]
    near = get_close_matches(folded, [*UNITS, *_SPELLINGS], 4, 0.6)
    if near:
        hint = f"; did you mean {', '.join(near)}?"
    else:
        hint = "; list_units has all"
    raise ValueError(f"there is no unit {name!r}{hint}")


def convert_units(
    value: Annotated[float, Field(description="How many.")],
    from_unit: UnitName,
    to_unit: UnitName,
    digits: Annotated[
        int, Field(ge=1, le=15, description="Significant digits in the answer.")
    ] = 10,
) -> dict[str, Any]:
    """Convert between units of length, mass, volume, area, speed, time, data, energy, pressure or
    temperature."""
    source_name = _resolve_unit(from_unit)
    target_name = _resolve_unit(to_unit)
    source = UNITS[source_name]
    target = UNITS[target_name]
    if source.quantity != target.quantity:
        raise ValueError(
            f"{source_name} measures {source.quantity}, {target_name} measures {target.quantity}"
        )
    exact = (Fraction(str(value)) * source.factor + source.offset - target.offset) / target.factor
    return {
        "value": float(f"{float(exact):.{digits}g}"),
        "unit": target_name,
        "quantity": target.quantity,
    }


def list_units(
    quantity: Annotated[Quantity | None, Field(description="Only units of this quantity.")] = None,
) -> dict[str, list[str]]:
    """List the units that can be converted, by quantity."""
    if quantity:
        wanted = [quantity]
    else:
        wanted = list(_TABLE)
    return {
        name: [unit for unit, about in UNITS.items() if about.quantity == name] for name in wanted
    }


def compare_measures(
    first_value: Annotated[float, Field(description="How many of the first unit.")],
    first_unit: UnitName,
    second_value: Annotated[float, Field(description="How many of the second unit.")],
    second_unit: UnitName,
) -> dict[str, Any]:
    """Tell which of two measures in different units is larger, and by what factor."""
    first_definition = UNITS[_resolve_unit(first_unit)]
    second_definition = UNITS[_resolve_unit(second_unit)]
    if first_definition.quantity != second_definition.quantity:
        raise ValueError(
            f"{first_unit} measures {first_definition.quantity}, {second_unit} measures "
            f"{second_definition.quantity}"
        )
    first = Fraction(str(first_value)) * first_definition.factor + first_definition.offset
    second = Fraction(str(second_value)) * second_definition.factor + second_definition.offset
    larger = "second"
    if first == second:
        larger = "equal"
    elif first > second:
        larger = "first"
    return {
        "larger": larger,
        "ratio": float(f"{float(first / second):.10g}") if second else None,
    }


def format_bytes(
    size: Annotated[int, Field(ge=0, le=10**18, description="Number of bytes.")],
    standard: Annotated[
        Literal["binary", "decimal"],
        Field(description="binary: KiB, MiB (1024); decimal: kB, MB (1000)."),
    ] = "binary",
) -> str:
    """Write a number of bytes so that people can read it, such as 1.5 GiB."""
    step = 1024
    names = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    if standard == "decimal":
        step = 1000
        names = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
    power = 0
    # Rounded first: 1023.999 KiB would otherwise be shown as 1024 KiB.
    while power < len(names) - 1 and round(Decimal(size) / step**power, 2) >= step:
        power += 1
    return f"{round(Decimal(size) / step**power, 2).normalize():f} {names[power]}"


_DURATION = re.compile(
    r"(\d{1,12}(?:\.\d{1,6})?)\s*(weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s|milliseconds?|ms)(?![a-z])"
)
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}


def parse_duration(
    text: Annotated[
        str,
        Field(
            max_length=100,
            description="Such as 1h30m, 2 days 4 hours, 90 min or 01:30:00.",
            examples=["1h30m"],
        ),
    ],
) -> dict[str, float]:
    """Read a duration written by a person and return it in seconds, minutes and hours."""
    plain = text.strip().lower().replace(",", " ").replace(" and ", " ")
    if re.fullmatch(r"\d{1,5}(:\d{1,2}){1,2}(\.\d{1,6})?", plain):
        parts = [Fraction(part) for part in plain.split(":")]
        seconds = sum((part * 60**index for index, part in enumerate(reversed(parts))), Fraction(0))
        seconds *= 60 if len(parts) == 2 else 1
    else:
        rest = _DURATION.sub("", plain)
        if rest.strip() or not _DURATION.search(plain):
            raise ValueError(
                f"{text!r} is not a duration; write it like 1h30m, 2 days 4 hours or 01:30:00"
            )
        seconds = Fraction(0)
        for number, unit in _DURATION.findall(plain):
            if unit.startswith(("ms", "milli")):
                scale = Fraction(1, 1000)
            else:
                scale = Fraction(_SECONDS[unit[0]])
            seconds += Fraction(number) * scale
    return {
        "seconds": float(seconds),
        "minutes": float(seconds / 60),
        "hours": float(seconds / 3600),
    }


def format_duration(
    seconds: Annotated[float, Field(ge=0, le=1e12, description="The duration in seconds.")],
    parts: Annotated[int, Field(ge=1, le=5, description="How many units to name at most.")] = 2,
) -> str:
    """Write a number of seconds so that people can read it, such as 2 days 4 hours."""
    rest = Fraction(str(seconds))
    if rest < 1:
        if rest:
            return f"{float(rest * 1000):g} milliseconds"
        return "0 seconds"
    sizes = (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
    first = next(index for index, (_, size) in enumerate(sizes) if rest >= size)
    shown = sizes[first : first + parts]
    rounded = round(rest / shown[-1][1]) * shown[-1][1]
    names: list[str] = []
    for name, size in sizes:
        number, rounded = divmod(rounded, size)
        if number:
            names.append(f"{number} {name}{'' if number == 1 else 's'}")
    return " ".join(names[:parts])


TOOLS = (
    make_read_only_tool("Convert units", convert_units),
    make_read_only_tool("List units", list_units),
    make_read_only_tool("Compare measures", compare_measures),
    make_read_only_tool("Format bytes", format_bytes),
    make_read_only_tool("Parse a duration", parse_duration),
    make_read_only_tool("Format a duration", format_duration),
)
