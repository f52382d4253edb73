"""Clock: dates, times and zones."""

import calendar
import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field

from portico.demo.tool_factory import make_random_tool, make_read_only_tool

MAX_DAYS = 366 * 200

Day = Annotated[date, Field(description="A date as YYYY-MM-DD.")]
Zone = Annotated[
    str,
    Field(
        max_length=64,
        description="IANA name such as Europe/Paris, UTC, or an offset such as +05:30.",
    ),
]
Holidays = Annotated[list[date], Field(max_length=400, description="Dates that are not worked.")]

_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?")


def _parse_zone(name: str) -> tzinfo:
    text = name.strip()
    if text.upper() in ("UTC", "GMT", "Z"):
        return UTC
    if found := _OFFSET.fullmatch(text):
        minutes = int(found[2]) * 60 + int(found[3] or 0)
        if minutes < 24 * 60:
            return timezone(timedelta(minutes=minutes if found[1] == "+" else -minutes))
    try:
        return ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        words = text.replace(" ", "_").casefold().rpartition("/")[2]
        near = sorted(zone for zone in available_timezones() if words and words in zone.casefold())
        if near:
            hint = f"; did you mean {', '.join(near[:5])}?"
        else:
            hint = "; list_time_zones finds names"
        raise ValueError(f"there is no time zone {name!r}{hint}") from None


def now(zone: Zone = "UTC") -> dict[str, Any]:
    """Tell the current date and time in a time zone."""
    moment = datetime.now(_parse_zone(zone)).replace(microsecond=0)
    return {
        "iso": moment.isoformat(),
        "date": moment.date().isoformat(),
        "time": moment.strftime("%H:%M:%S"),
        "weekday": moment.strftime("%A"),
        "utc_offset": moment.strftime("%z"),
        "unix": int(moment.timestamp()),
    }


def convert_time(
    time: Annotated[
        datetime, Field(description="As YYYY-MM-DDTHH:MM; an offset in it wins over from_zone.")
    ],
    from_zone: Zone,
    to_zone: Zone,
) -> dict[str, Any]:
    """Convert a date and time from one time zone to another."""
    if time.tzinfo:
        moment = time
    else:
        moment = time.replace(tzinfo=_parse_zone(from_zone))
    try:
        converted = moment.astimezone(_parse_zone(to_zone))
    except OverflowError:
        raise ValueError("that time is outside the years 1 to 9999") from None
    return {
        "from": moment.isoformat(),
        "to": converted.isoformat(),
        "weekday": converted.strftime("%A"),
        "day_shift": (converted.date() - moment.date()).days,
    }


def list_time_zones(
    contains: Annotated[
        str, Field(max_length=64, description="Part of the name, such as a city or continent.")
    ] = "",
    limit: Annotated[int, Field(ge=1, le=600, description="Most names to return.")] = 50,
) -> list[dict[str, str]]:
    """List time zones by part of their name, with the offset they have now."""
    wanted = contains.replace(" ", "_").casefold()
    names = sorted(name for name in available_timezones() if wanted in name.casefold())
    return [
        {"zone": name, "utc_offset": datetime.now(ZoneInfo(name)).strftime("%z")}
        for name in names[:limit]
    ]


def date_difference(start: Day, end: Day) -> dict[str, Any]:
    """Count the days, weeks, months and years between two dates; also how long until or since."""
    first = min(start, end)
    last = max(start, end)
    months = (last.year - first.year) * 12 + last.month - first.month
    if _add_months(first, months) > last:
        months -= 1
    days = (last - first).days
    return {
        "days": (end - start).days,
        "weeks": round(days / 7, 2),
        "years": months // 12,
        "months": months % 12,
        "rest_days": (last - _add_months(first, months)).days,
    }


def _add_months(day: date, months: int) -> date:
    years, month = divmod(day.month - 1 + months, 12)
    year = day.year + years
    if not 1 <= year <= 9999:
        raise ValueError("the result is outside the years 1 to 9999")
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def add_to_date(
    start: Day,
    days: Annotated[
        int, Field(ge=-MAX_DAYS, le=MAX_DAYS, description="Days to add; negative goes back.")
    ] = 0,
    weeks: Annotated[int, Field(ge=-10_000, le=10_000, description="Weeks to add.")] = 0,
    months: Annotated[
        int, Field(ge=-2_400, le=2_400, description="Months to add; the 31st becomes the last.")
    ] = 0,
    years: Annotated[int, Field(ge=-1_000, le=1_000, description="Years to add.")] = 0,
) -> dict[str, str]:
    """Add or subtract days, weeks, months and years to or from a date."""
    try:
        result = _add_months(start, months + 12 * years) + timedelta(days=days, weeks=weeks)
    except OverflowError:
        raise ValueError("the result is outside the years 1 to 9999") from None
    return {"date": result.isoformat(), "weekday": result.strftime("%A")}


def count_business_days(start: Day, end: Day, holidays: Holidays = []) -> dict[str, int]:  # noqa: B006 - never changed
    """Count working days (Monday to Friday, without holidays) from one date to another, both
    included."""
    first = min(start, end)
    last = max(start, end)
    workdays_off = {day for day in holidays if first <= day <= last and day.weekday() < 5}
    days = (last - first).days + 1
    weeks, rest = divmod(days, 7)
    weekdays = weeks * 5 + sum((first.weekday() + day_index) % 7 < 5 for day_index in range(rest))
    return {
        "business_days": weekdays - len(workdays_off),
        "calendar_days": days,
        "holidays": len(workdays_off),
    }


def describe_date(day: Day) -> dict[str, Any]:
    """Tell the weekday, ISO week, quarter, day of the year and whether the year is a leap year."""
    week = day.isocalendar()
    return {
        "weekday": day.strftime("%A"),
        "iso_week": f"{week.year:04}-W{week.week:02}",
        "quarter": (day.month + 2) // 3,
        "day_of_year": day.timetuple().tm_yday,
        "days_in_month": calendar.monthrange(day.year, day.month)[1],
        "leap_year": calendar.isleap(day.year),
    }


def month_calendar(
    year: Annotated[int, Field(ge=1, le=9999, description="The year.")],
    month: Annotated[int, Field(ge=1, le=12, description="The month, 1 to 12.")],
    week_starts_on: Annotated[
        Literal["monday", "sunday"], Field(description="First day shown.")
    ] = "monday",
) -> str:
    """Draw the calendar of a month as text."""
    if week_starts_on == "monday":
        first = calendar.MONDAY
    else:
        first = calendar.SUNDAY
    return calendar.TextCalendar(first).formatmonth(year, month).rstrip()


def unix_time(
    value: Annotated[
        float | datetime,
        Field(
            description=(
                "Seconds (or milliseconds) since 1970, or a date and time to convert to them."
            )
        ),
    ],
    zone: Zone = "UTC",
) -> dict[str, Any]:
    """Convert a Unix timestamp to a date and time, or a date and time to a Unix timestamp."""
    if isinstance(value, datetime):
        if value.tzinfo:
            moment = value
        else:
            moment = value.replace(tzinfo=_parse_zone(zone))
    else:
        # Seconds are below this until the year 5138; milliseconds are above it since 1973.
        if abs(value) >= 1e11:
            seconds = value / 1000
        else:
            seconds = value
        try:
            moment = datetime.fromtimestamp(seconds, _parse_zone(zone))
        except (OverflowError, OSError, ValueError):
            raise ValueError(f"{value:g} is outside the years 1 to 9999") from None
    return {"unix": moment.timestamp(), "iso": moment.isoformat(), "weekday": moment.strftime("%A")}


TOOLS = (
    make_random_tool("Current time", now),
    make_read_only_tool("Convert between time zones", convert_time),
    make_read_only_tool("List time zones", list_time_zones),
    make_read_only_tool("Days between dates", date_difference),
    make_read_only_tool("Add to a date", add_to_date),
    make_read_only_tool("Count business days", count_business_days),
    make_read_only_tool("Describe a date", describe_date),
    make_read_only_tool("Month calendar", month_calendar),
    make_read_only_tool("Unix timestamps", unix_time),
)
