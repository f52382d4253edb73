"""Every unit converts exactly, and back."""

import pytest

from portico.demo import units


@pytest.mark.parametrize(
    ("value", "here", "there", "result"),
    [
        (26.2, "miles", "km", 42.1648128),
        (1, "inch", "cm", 2.54),
        (32, "°F", "celsius", 0),
        (-40, "C", "F", -40),
        (0, "K", "C", -273.15),
        (100, "km/h", "m/s", 27.77777778),
        (1, "gallon", "l", 3.785411784),
        (1, "GiB", "MB", 1073.741824),
        (1, "Hectare", "m²", 10000),
        (12, "ounces", "lbs", 0.75),
    ],
)
def test_conversions(value: float, here: str, there: str, result: float) -> None:
    assert units.convert_units(value, here, there)["value"] == result


@pytest.mark.parametrize("name", list(units.UNITS))
def test_every_unit_converts_there_and_back(name: str) -> None:
    base = next(
        unit for unit, about in units.UNITS.items() if about.quantity == units.UNITS[name].quantity
    )
    there = units.convert_units(7.5, name, base, digits=15)["value"]
    assert units.convert_units(there, base, name)["value"] == pytest.approx(7.5)


def test_every_spelling_leads_to_a_unit() -> None:
    assert {units._resolve_unit(word) for word in units._SPELLINGS} <= set(units.UNITS)  # pyright: ignore[reportPrivateUsage]


def test_units_of_different_quantities_do_not_mix() -> None:
    with pytest.raises(ValueError, match="km measures length, kg measures mass"):
        units.convert_units(1, "km", "kg")


def test_a_wrong_unit_gets_the_nearest_back() -> None:
    with pytest.raises(ValueError, match="kilometer"):
        units.convert_units(1, "kilometter", "m")


def test_milli_and_mega_are_not_confused() -> None:
    assert units.convert_units(1, "MB", "kB")["value"] == 1000
    assert units.convert_units(1, "mb", "B")["unit"] == "B"


def test_units_are_listed_by_quantity() -> None:
    assert len(units.list_units()) == 9
    assert units.list_units("temperature") == {"temperature": ["K", "C", "F"]}


def test_measures_are_compared() -> None:
    assert units.compare_measures(1, "mile", 1600, "m") == {"larger": "first", "ratio": 1.00584}
    assert units.compare_measures(0, "C", 32, "F")["larger"] == "equal"
