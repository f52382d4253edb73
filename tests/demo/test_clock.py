"""The clock knows zones, months and working days."""

from datetime import date, datetime

import pytest

from portico.demo import clock


def test_now_is_told_in_a_zone() -> None:
    found = clock.now("+05:30")
    assert found["utc_offset"] == "+0530"
    assert datetime.fromisoformat(found["iso"]).timestamp() == found["unix"]


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
    assert clock.add_to_date(date(2024, 2, 29), years=-1, days=1)["date"] == "2023-03-01"
    assert clock.add_to_date(date(2024, 1, 1), weeks=1) == {
        "date": "2024-01-08",
        "weekday": "Monday",
    }
    for far in ({"years": 1000, "months": 2400}, {"years": -1000}):
        with pytest.raises(ValueError, match="outside"):
            clock.add_to_date(date(9500, 1, 1) if far["years"] > 0 else date(500, 1, 1), **far)
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
    assert found == {"business_days": 4, "calendar_days": 7, "holidays": 1}


def test_a_date_is_described() -> None:
    assert clock.describe_date(date(2024, 12, 30)) == {
        "weekday": "Monday",
        "iso_week": "2025-W01",
        "quarter": 4,
        "day_of_year": 365,
        "days_in_month": 31,
        "leap_year": True,
    }


def test_a_month_is_drawn() -> None:
    assert clock.month_calendar(2024, 2).splitlines()[-1].split() == ["26", "27", "28", "29"]
    assert clock.month_calendar(2024, 2, "sunday").splitlines()[1].startswith("Su")


def test_unix_times_go_both_ways() -> None:
    assert clock.unix_time(0)["iso"] == "1970-01-01T00:00:00+00:00"
    assert clock.unix_time(1_700_000_000_000)["unix"] == 1_700_000_000
    assert clock.unix_time(datetime(1970, 1, 1, 1), "+01:00")["unix"] == 0
    with pytest.raises(ValueError, match="outside"):
        clock.unix_time(1e30)
