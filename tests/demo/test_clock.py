"""The clock knows zones, months and working days."""

from datetime import date, datetime

import pytest

from portico.demo import clock


def test_now_is_given_in_a_zone() -> None:
    found = clock.now("Asia/Kolkata")
    assert found["utc_offset"] == "+0530"
    assert datetime.fromisoformat(found["iso"]).strftime("%H:%M:%S") == found["time"]


def test_times_move_between_zones() -> None:
    found = clock.convert_time(datetime(2024, 1, 1, 23, 30), "Europe/Paris", "Asia/Tokyo")
    assert (found["to"], found["day_shift"], found["weekday"]) == (
        "2024-01-02T07:30:00+09:00",
        1,
        "Tuesday",
    )
    given = clock.convert_time(
        datetime.fromisoformat("2024-07-01T12:00:00Z"), "Asia/Tokyo", "America/New_York"
    )
    assert given["to"] == "2024-07-01T08:00:00-04:00"


@pytest.mark.parametrize("zone", ["Mars/Olympus", "paris", "../etc/passwd", "", "+99:00"])
def test_an_unknown_zone_is_refused_with_the_nearest(zone: str) -> None:
    with pytest.raises(ValueError, match="no time zone") as refused:
        clock.now(zone)
    if zone == "paris":
        assert "Europe/Paris" in str(refused.value)


def test_zones_are_found_by_city() -> None:
    assert [found["zone"] for found in clock.list_time_zones("new york")] == ["America/New_York"]


def test_differences_between_dates() -> None:
    found = clock.date_difference(date(2020, 2, 29), date(2024, 3, 1))
    assert (found["days"], found["years"], found["months"], found["rest_days"]) == (1462, 4, 0, 1)
    assert clock.date_difference(date(2024, 1, 31), date(2024, 2, 29))["rest_days"] == 0
    assert clock.date_difference(date(2024, 1, 10), date(2024, 1, 1))["days"] == -9


def test_adding_to_dates() -> None:
    assert clock.add_to_date(date(2024, 1, 31), months=1)["date"] == "2024-02-29"
    assert clock.add_to_date(date(2024, 2, 29), months=-12, days=1)["date"] == "2023-03-01"
    assert clock.add_to_date(date(2024, 1, 1), days=7) == {
        "date": "2024-01-08",
        "weekday": "Monday",
    }
    for start, months in ((date(9900, 1, 1), 2_400), (date(100, 1, 1), -2_400)):
        with pytest.raises(ValueError, match="outside"):
            clock.add_to_date(start, months=months)
    with pytest.raises(ValueError, match="outside"):
        clock.add_to_date(date(9999, 12, 1), days=100)


@pytest.mark.parametrize(
    ("start", "end", "working"),
    [
        (date(2024, 1, 1), date(2024, 1, 7), 5),
        (date(2024, 1, 6), date(2024, 1, 7), 0),
        (date(2024, 1, 5), date(2024, 1, 8), 2),
        (date(2024, 12, 31), date(2024, 1, 1), 262),
        (date(1, 1, 1), date(1, 1, 1), 1),
    ],
)
def test_business_days(start: date, end: date, working: int) -> None:
    assert clock.count_business_days(start, end)["business_days"] == working


def test_a_holiday_on_a_weekend_is_not_counted_twice() -> None:
    found = clock.count_business_days(
        date(2024, 1, 1), date(2024, 1, 7), [date(2024, 1, 1), date(2024, 1, 6)]
    )
    assert found == {"business_days": 4, "calendar_days": 7}
