"""Windows' time zones, and the current one of a system, which is in its registry."""

from __future__ import annotations

import calendar
import time
from typing import Final, Literal

from transom.kit.named_tuple import NamedTuple
from transom.machines.windows.registry import WindowsRegistry

KEY: Final = r"HKLM\SYSTEM\CurrentControlSet\Control\TimeZoneInformation"
DISABLED: Final = "_dstoff"  # suffix of a zone's name when daylight saving time is disabled
_SUNDAY: Final = 6

Rule = Literal["", "america", "europe"]


class TimeZone(NamedTuple):
    id: str
    minutes: int  # east of UTC
    places: str
    rule: Rule = ""

    @property
    def standard_name(self) -> str:
        return "Coordinated Universal Time" if self.id == "UTC" else self.id

    @property
    def daylight_name(self) -> str:
        return self.standard_name.replace("Standard", "Daylight")

    @property
    def display_name(self) -> str:
        return f"({self.offset_text}) {self.places}"

    @property
    def offset_text(self) -> str:
        if not self.minutes:
            return "UTC" if self.id == "UTC" else "UTC+00:00"
        hours, minutes = divmod(abs(self.minutes), 60)
        return f"UTC{'-' if self.minutes < 0 else '+'}{hours:02d}:{minutes:02d}"


ZONES: Final = (
    TimeZone("Hawaiian Standard Time", -600, "Hawaii"),
    TimeZone("Alaskan Standard Time", -540, "Alaska", "america"),
    TimeZone("Pacific Standard Time", -480, "Pacific Time (US & Canada)", "america"),
    TimeZone("US Mountain Standard Time", -420, "Arizona"),
    TimeZone("Mountain Standard Time", -420, "Mountain Time (US & Canada)", "america"),
    TimeZone("Central Standard Time", -360, "Central Time (US & Canada)", "america"),
    TimeZone("Canada Central Standard Time", -360, "Saskatchewan"),
    TimeZone("SA Pacific Standard Time", -300, "Bogota, Lima, Quito, Rio Branco"),
    TimeZone("Eastern Standard Time", -300, "Eastern Time (US & Canada)", "america"),
    TimeZone("Atlantic Standard Time", -240, "Atlantic Time (Canada)", "america"),
    TimeZone("SA Western Standard Time", -240, "Georgetown, La Paz, Manaus, San Juan"),
    TimeZone("Newfoundland Standard Time", -210, "Newfoundland", "america"),
    TimeZone("E. South America Standard Time", -180, "Brasilia"),
    TimeZone("Argentina Standard Time", -180, "City of Buenos Aires"),
    TimeZone("UTC-02", -120, "Coordinated Universal Time-02"),
    TimeZone("Azores Standard Time", -60, "Azores", "europe"),
    TimeZone("UTC", 0, "Coordinated Universal Time"),
    TimeZone("GMT Standard Time", 0, "Dublin, Edinburgh, Lisbon, London", "europe"),
    TimeZone("Greenwich Standard Time", 0, "Monrovia, Reykjavik"),
    TimeZone(
        "W. Europe Standard Time", 60, "Amsterdam, Berlin, Bern, Rome, Stockholm, Vienna", "europe"
    ),
    TimeZone(
        "Central Europe Standard Time",
        60,
        "Belgrade, Bratislava, Budapest, Ljubljana, Prague",
        "europe",
    ),
    TimeZone("Romance Standard Time", 60, "Brussels, Copenhagen, Madrid, Paris", "europe"),
    TimeZone("Central European Standard Time", 60, "Sarajevo, Skopje, Warsaw, Zagreb", "europe"),
    TimeZone("W. Central Africa Standard Time", 60, "West Central Africa"),
    TimeZone("GTB Standard Time", 120, "Athens, Bucharest", "europe"),
    TimeZone("FLE Standard Time", 120, "Helsinki, Kyiv, Riga, Sofia, Tallinn, Vilnius", "europe"),
    TimeZone("South Africa Standard Time", 120, "Harare, Pretoria"),
    TimeZone("Turkey Standard Time", 180, "Istanbul"),
    TimeZone("Arab Standard Time", 180, "Kuwait, Riyadh"),
    TimeZone("Russian Standard Time", 180, "Moscow, St. Petersburg"),
    TimeZone("E. Africa Standard Time", 180, "Nairobi"),
    TimeZone("Arabian Standard Time", 240, "Abu Dhabi, Muscat"),
    TimeZone("Afghanistan Standard Time", 270, "Kabul"),
    TimeZone("Pakistan Standard Time", 300, "Islamabad, Karachi"),
    TimeZone("India Standard Time", 330, "Chennai, Kolkata, Mumbai, New Delhi"),
    TimeZone("Nepal Standard Time", 345, "Kathmandu"),
    TimeZone("Bangladesh Standard Time", 360, "Dhaka"),
    TimeZone("SE Asia Standard Time", 420, "Bangkok, Hanoi, Jakarta"),
    TimeZone("China Standard Time", 480, "Beijing, Chongqing, Hong Kong, Urumqi"),
    TimeZone("Singapore Standard Time", 480, "Kuala Lumpur, Singapore"),
    TimeZone("W. Australia Standard Time", 480, "Perth"),
    TimeZone("Taipei Standard Time", 480, "Taipei"),
    TimeZone("Tokyo Standard Time", 540, "Osaka, Sapporo, Tokyo"),
    TimeZone("Korea Standard Time", 540, "Seoul"),
    TimeZone("AUS Central Standard Time", 570, "Darwin"),
    TimeZone("E. Australia Standard Time", 600, "Brisbane"),
)
UTC: Final = next(zone for zone in ZONES if zone.id == "UTC")


def find_zone(name: str) -> TimeZone | None:
    return next((zone for zone in ZONES if zone.id.lower() == name.lower()), None)


def current_zone(registry: WindowsRegistry) -> TimeZone:
    """The time zone of a system."""
    return find_zone(str(registry.get(KEY, "TimeZoneKeyName") or "")) or UTC


def uses_daylight_time(registry: WindowsRegistry) -> bool:
    return current_zone(registry).rule != "" and not registry.get(
        KEY, "DynamicDaylightTimeDisabled"
    )


def set_zone(registry: WindowsRegistry, zone: TimeZone, *, daylight: bool = True) -> None:
    registry.set(KEY, "TimeZoneKeyName", zone.id)
    registry.set(KEY, "Bias", -zone.minutes & 0xFFFFFFFF)
    registry.set(KEY, "StandardName", zone.standard_name)
    registry.set(KEY, "DaylightName", zone.daylight_name)
    registry.set(KEY, "DynamicDaylightTimeDisabled", 0 if daylight else 1)


def offset_seconds(registry: WindowsRegistry, moment: float) -> int:
    """The offset of local time from UTC at a given time."""
    zone = current_zone(registry)
    summer = uses_daylight_time(registry) and _in_summer(zone, moment)
    return zone.minutes * 60 + (3600 if summer else 0)


def _in_summer(zone: TimeZone, moment: float) -> bool:
    year = time.gmtime(moment).tm_year
    if zone.rule == "europe":  # everywhere at 01:00 UTC
        begin, end = _sunday(year, 3, -1) + 3600, _sunday(year, 10, -1) + 3600
    else:  # at 02:00 local time
        begin = _sunday(year, 3, 1) + 7200 - zone.minutes * 60
        end = _sunday(year, 11, 0) + 7200 - 3600 - zone.minutes * 60
    return begin <= moment < end


def _sunday(year: int, month: int, which: int) -> int:
    """Midnight of a Sunday of a month: the first is 0, the last -1."""
    days = [
        day
        for day in range(1, calendar.monthrange(year, month)[1] + 1)
        if calendar.weekday(year, month, day) == _SUNDAY
    ]
    return calendar.timegm((year, month, days[which], 0, 0, 0))
