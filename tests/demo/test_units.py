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
        (180, "degrees", "rad", 3.141592654),
        (1, "Hectare", "m²", 10000),
        (1, "psi", "Pa", 6894.757293),
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
    assert units.convert_units(1, "MW", "kW")["value"] == 1000
    assert units.convert_units(1, "mb", "B")["unit"] == "B"


def test_units_are_listed_by_quantity() -> None:
    assert len(units.list_units()) == 12
    assert units.list_units("temperature") == {"temperature": ["K", "C", "F", "R"]}


def test_measures_are_compared() -> None:
    assert units.compare_measures(1, "mile", 1600, "m") == {"larger": "first", "ratio": 1.00584}
    assert units.compare_measures(0, "C", 32, "F")["larger"] == "equal"


@pytest.mark.parametrize(
    ("size", "standard", "shown"),
    [
        (0, "binary", "0 B"),
        (1023, "binary", "1023 B"),
        (1536, "binary", "1.5 KiB"),
        (1_048_575, "binary", "1 MiB"),
        (999_999, "decimal", "1 MB"),
        (10**18, "decimal", "1 EB"),
    ],
)
def test_bytes_are_written_for_people(size: int, standard: str, shown: str) -> None:
    assert units.format_bytes(size, standard) == shown  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h30m", 5400),
        ("2 days, 4 hours and 5 minutes", 187_500),
        ("90 min", 5400),
        ("1:30:00", 5400),
        ("1:30", 5400),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("3 weeks", 1_814_400),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert units.parse_duration(text)["seconds"] == seconds


@pytest.mark.parametrize("text", ["", "soon", "5", "1 month", "h", "1h later"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "parts", "shown"),
    [
        (0, 2, "0 seconds"),
        (0.25, 2, "250 milliseconds"),
        (61, 2, "1 minute 1 second"),
        (3599.9, 2, "1 hour"),
        (187_500, 2, "2 days 4 hours"),
        (187_500, 5, "2 days 4 hours 5 minutes"),
        (86_400, 1, "1 day"),
    ],
)
def test_durations_are_written(seconds: float, parts: int, shown: str) -> None:
    assert units.format_duration(seconds, parts) == shown
