"""Clock: dates, times and zones."""

import calendar
from datetime import date, datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field

from portico.demo import make_tool

Day = Annotated[date, Field(description="A date as YYYY-MM-DD.")]
Zone = Annotated[str, Field(max_length=64, description="IANA name such as Europe/Paris, or UTC.")]
Holidays = Annotated[list[date], Field(max_length=400, description="Dates that are not worked.")]


def _parse_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name.strip())
    except (KeyError, ValueError, OSError):
        near = [zone["zone"] for zone in list_time_zones(name.rpartition("/")[2], 5)]
        hint = f"did you mean {', '.join(near)}?" if near else "list_time_zones finds names"
        raise ValueError(f"there is no time zone {name!r}; {hint}") from None


def now(zone: Zone = "UTC") -> dict[str, Any]:
    """Tell the current date and time in a time zone."""
    moment = datetime.now(_parse_zone(zone)).replace(microsecond=0)
    return {
        "iso": moment.isoformat(),
        "date": moment.date().isoformat(),
        "time": moment.strftime("%H:%M:%S"),
        "weekday": moment.strftime("%A"),
        "utc_offset": moment.strftime("%z"),
    }


def convert_time(
    time: Annotated[
        datetime, Field(description="As YYYY-MM-DDTHH:MM; an offset in it wins over from_zone.")
    ],
    from_zone: Zone,
    to_zone: Zone,
) -> dict[str, Any]:
    """Convert a date and time from one time zone to another."""
    moment = time if time.tzinfo else time.replace(tzinfo=_parse_zone(from_zone))
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
    limit: Annotated[int, Field(ge=1, le=600, description="Most zones to return.")] = 600,
) -> list[dict[str, str]]:
    """List the time zones of the world, with the offset they have now."""
    wanted = contains.strip().replace(" ", "_").casefold()
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
    return {
        "days": (end - start).days,
        "weeks": round((last - first).days / 7, 2),
        "years": months // 12,
        "months": months % 12,
        "rest_days": (last - _add_months(first, months)).days,
    }


def add_to_date(
    start: Day,
    days: Annotated[
        int, Field(ge=-80_000, le=80_000, description="Days to add; negative goes back.")
    ] = 0,
    months: Annotated[
        int, Field(ge=-2_400, le=2_400, description="Months to add; the 31st becomes the last.")
    ] = 0,
) -> dict[str, str]:
    """Add or subtract days and months to or from a date."""
    try:
        result = _add_months(start, months) + timedelta(days=days)
    except (OverflowError, ValueError):
        raise ValueError("the result is outside the years 1 to 9999") from None
    return {"date": result.isoformat(), "weekday": result.strftime("%A")}


def _add_months(day: date, months: int) -> date:
    years, month = divmod(day.month - 1 + months, 12)
    last_day = calendar.monthrange(day.year + years, month + 1)[1]
    return date(day.year + years, month + 1, min(day.day, last_day))


def count_business_days(
    start: Day,
    end: Day,
    holidays: Holidays = [],  # noqa: B006 - never changed
) -> dict[str, int]:
    """Count working days (Monday to Friday, without holidays) from one date to another, both
    included."""
    first = min(start, end)
    last = max(start, end)
    days_off = {day for day in holidays if first <= day <= last and day.weekday() < 5}
    days = (last - first).days + 1
    weeks, rest = divmod(days, 7)
    weekdays = weeks * 5 + sum((first.weekday() + extra) % 7 < 5 for extra in range(rest))
    return {"business_days": weekdays - len(days_off), "calendar_days": days}


TOOLS = (
    make_tool("Current time", now, idempotent=False),
    make_tool("Convert between time zones", convert_time),
    make_tool("List time zones", list_time_zones, idempotent=False),
    make_tool("Difference of dates", date_difference),
    make_tool("Add to a date", add_to_date),
    make_tool("Count business days", count_business_days),
)
