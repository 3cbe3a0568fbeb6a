"""Known peaks: what the minima of a service are at a moment, by cron expressions with a duration.

An entry holds from each moment that its expression names, for its duration; the largest minimum of those that hold counts.
All in UTC, to the minute. As with cron, a day must match its month, and day of month or day of week where both are
restricted; 7 is Sunday too.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from steelyard.api.goals import ScheduledMinimum
from steelyard.api.service import InferenceService

LONGEST_SECONDS = 7 * 86_400.0
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))  # minute, hour, day of month, month, day of week
NAMES = ("minute", "hour", "day of month", "month", "day of week")


class NotCron(ValueError):
    """An expression cannot be read; the message says which field and why."""


@dataclass(frozen=True)
class Cron:
    """The values that each field admits; days of the week from 0, Sunday."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool  # day of month and day of week are both restricted: one of them is enough

    def on(self, day: datetime) -> bool:
        """Whether it names any moment of this day."""
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (of_month or of_week if self.either else of_month and of_week)

    def latest(self, now: datetime, within: timedelta) -> datetime | None:
        """The latest moment named that is not after `now`, if it is less than `within` before it."""
        day = now.replace(hour=0, minute=0, second=0, microsecond=0)
        while day + timedelta(days=1) > now - within:
            if self.on(day):
                for hour in sorted(self.hours, reverse=True):
                    for minute in sorted(self.minutes, reverse=True):
                        moment = day + timedelta(hours=hour, minutes=minute)
                        if moment <= now:
                            return moment if moment + within > now else None
            day -= timedelta(days=1)
        return None


@lru_cache(maxsize=1024)
def read(text: str) -> Cron:
    """Read an expression. Raises `NotCron`."""
    words = text.split()
    if len(words) != len(RANGES):
        raise NotCron(f"it has {len(words)} fields instead of five: minute, hour, day of month, month, day of week")
    fields = [_values(word, *bounds, name) for word, bounds, name in zip(words, RANGES, NAMES, strict=True)]
    weekdays = frozenset(day % 7 for day in fields[4])
    return Cron(fields[0], fields[1], fields[2], fields[3], weekdays, either="*" not in (words[2][0], words[4][0]))


def minimum(schedule: Iterable[ScheduledMinimum], role: str, now: float, lead_seconds: float = 0.0) -> int:
    """The largest minimum of a role that holds at `now` (unix seconds), or begins within `lead_seconds`; 0 where none does.

    An entry so counts from the lead before each of its moments to its end, however short it is beside the lead.
    """
    moment = datetime.fromtimestamp(now + lead_seconds, UTC)
    found = 0
    for entry in schedule:
        wanted, within = getattr(entry, role), timedelta(seconds=entry.duration.seconds + lead_seconds)
        if wanted is not None and read(entry.cron).latest(moment, within) is not None:
            found = max(found, wanted)
    return found


def scheduled(service: InferenceService, now: float, lead_seconds: float = 0.0) -> InferenceService:
    """Give the service with the minima that hold at `now`, or will within `lead_seconds`: what a start takes."""
    schedule = service.spec.autoscaling.schedule
    if not schedule:
        return service
    raised = {}
    for name, role in service.spec.roles.items():
        least = minimum(schedule, name, now, lead_seconds)
        if least > role.replicas.min:
            bounds = role.replicas.model_copy(update={"min": min(least, max(role.replicas.limit, role.replicas.min))})
            raised[name] = role.model_copy(update={"replicas": bounds})
    return service.model_copy(update={"spec": service.spec.model_copy(update=raised)}) if raised else service


def _values(word: str, low: int, high: int, name: str) -> frozenset[int]:
    found: set[int] = set()
    for part in word.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        try:
            start = low if span == "*" else int(first)
            end = high if span == "*" or (slash and not dash) else int(last) if dash else start
            stride = int(step) if slash else 1
        except ValueError:
            raise NotCron(f"{name} {word!r} cannot be read; write such as *, 8, 1-5, */15 or 1,3") from None
        if not low <= start <= end <= high or stride < 1:
            raise NotCron(f"{name} {word!r} must lie between {low} and {high}, the smaller number first")
        found.update(range(start, end + 1, stride))
    return frozenset(found)
