"""Units: one exact factor for each unit, so a conversion is one division."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field

from portico.demo import make_tool

Quantity = Literal[
    "length", "mass", "volume", "area", "speed", "time", "data", "energy", "temperature",
]  # fmt: skip


@dataclass(frozen=True)
class Unit:
    """A unit: base = value × factor + offset."""

    quantity: Quantity
    factor: Fraction
    offset: Fraction = Fraction(0)


_TABLE: Mapping[Quantity, str] = {
    "length": "m 1, km 1000, cm 0.01, in 0.0254, ft 0.3048, yd 0.9144, mi 1609.344, nmi 1852",
    "mass": "kg 1, g 0.001, mg 1e-6, t 1000, lb 0.45359237, oz 0.028349523125, st 6.35029318",
    "volume": "l 1, ml 0.001, m3 1000, gal_us 3.785411784, gal_uk 4.54609, cup_us 0.2365882365",
    "area": "m2 1, km2 1e6, ha 10000, acre 4046.8564224, ft2 0.09290304, mi2 2589988.110336",
    "speed": "m/s 1, km/h 5/18, mph 0.44704, kn 463/900",
    "time": "s 1, ms 0.001, min 60, h 3600, d 86400, wk 604800, yr 31557600",
    "data": "B 1, bit 1/8, kB 1000, MB 1e6, GB 1e9, KiB 1024, MiB 1048576, GiB 1073741824",
    "energy": "J 1, kJ 1000, cal 4.184, kcal 4184, Wh 3600, kWh 3600000",
    "temperature": "K 1, C 1 273.15, F 5/9 229835/900",
}
_SPELLINGS = {
    "metre": "m", "meter": "m", "kilometre": "km", "kilometer": "km", "inch": "in", "inches": "in",
    "foot": "ft", "feet": "ft", "yard": "yd", "mile": "mi", "nautical mile": "nmi",
    "kilogram": "kg", "gram": "g", "tonne": "t", "pound": "lb", "lbs": "lb", "ounce": "oz",
    "stone": "st", "litre": "l", "liter": "l", "gallon": "gal_us", "cup": "cup_us",
    "hectare": "ha", "m²": "m2", "square metre": "m2", "square meter": "m2", "square feet": "ft2",
    "kph": "km/h", "knot": "kn", "second": "s", "minute": "min", "hour": "h", "day": "d",
    "week": "wk", "year": "yr", "byte": "B", "megabyte": "MB", "gigabyte": "GB", "joule": "J",
    "calorie": "cal", "celsius": "C", "°c": "C", "fahrenheit": "F", "°f": "F", "kelvin": "K",
}  # fmt: skip


def _build_units() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for quantity, line in _TABLE.items():
        for entry in line.split(", "):
            name, *numbers = entry.split()
            units[name] = Unit(quantity, *map(Fraction, numbers))
    return units


UNITS: Mapping[str, Unit] = _build_units()
_FOLDED = {name.casefold(): name for name in reversed(UNITS)} | _SPELLINGS

UnitName = Annotated[
    str, Field(max_length=40, description="A unit such as km, lb, gal_us, °F or mile.")
]


def _resolve_unit(name: str) -> str:
    text = name.strip()
    if text in UNITS:
        return text
    folded = text.casefold().replace("_", " ")
    for candidate in (folded, folded.removesuffix("s"), folded.removesuffix("es")):
        if candidate in _FOLDED:
            return _FOLDED[candidate]
    near = get_close_matches(folded, [*UNITS, *_SPELLINGS], 4, 0.6)
    hint = f"did you mean {', '.join(near)}?" if near else "list_units has all"
    raise ValueError(f"there is no unit {name!r}; {hint}")


def convert_units(
    value: Annotated[float, Field(description="How many.")],
    from_unit: UnitName,
    to_unit: UnitName,
    digits: Annotated[
        int, Field(ge=1, le=15, description="Significant digits in the answer.")
    ] = 10,
) -> dict[str, Any]:
    """Convert between units of length, mass, volume, area, speed, time, data, energy or
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
    rounded = float(f"{float(exact):.{digits}g}")
    return {"value": rounded, "unit": target_name, "quantity": target.quantity}


def list_units(
    quantity: Annotated[Quantity | None, Field(description="Only units of this quantity.")] = None,
) -> dict[str, list[str]]:
    """List the units that can be converted, by quantity."""
    found: dict[str, list[str]] = {}
    for name, unit in UNITS.items():
        if quantity in (None, unit.quantity):
            found.setdefault(unit.quantity, []).append(name)
    return found


def compare_measures(
    first_value: Annotated[float, Field(description="How many of the first unit.")],
    first_unit: UnitName,
    second_value: Annotated[float, Field(description="How many of the second unit.")],
    second_unit: UnitName,
) -> dict[str, Any]:
    """Tell which of two measures in different units is larger, and by what factor."""
    first = convert_units(first_value, first_unit, second_unit)["value"]
    larger = "first" if first > second_value else "second"
    if first == second_value:
        larger = "equal"
    return {"larger": larger, "ratio": round(first / second_value, 10) if second_value else None}


TOOLS = (
    make_tool("Convert units", convert_units),
    make_tool("List units", list_units),
    make_tool("Compare measures", compare_measures),
)
