"""Known peaks: which minimum holds when, and what cannot be a peak."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_bodies import KNOWN, service
from steelyard.decide.accept import refusals
from steelyard.decide.schedule import NotCron, minimum, read, scheduled

MONDAY = "2026-03-02"  # and the first of March is a Sunday


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def peaks(*entries: dict[str, Any], **more: Any) -> Any:
    bounds = {"decode": {"replicas": {"min": 1, "max": 9}}, "prefill": {"replicas": {"min": 2, "max": 4}}}
    return service({**bounds, "autoscaling": {"schedule": list(entries)}, **more})


@pytest.mark.parametrize(
    ("cron", "duration", "moment", "holds"),
    [
        ("0 8 * * 1-5", "2h", f"{MONDAY}T07:59:59", False),
        ("0 8 * * 1-5", "2h", f"{MONDAY}T08:00:00", True),
        ("0 8 * * 1-5", "2h", f"{MONDAY}T09:59:59", True),
        ("0 8 * * 1-5", "2h", f"{MONDAY}T10:00:00", False),
        ("0 8 * * 1-5", "2h", "2026-03-01T09:00:00", False),
        ("0 22 * * *", "8h", f"{MONDAY}T05:59:00", True),
        ("0 22 * * 0", "8h", f"{MONDAY}T05:59:00", True),
        ("0 22 * * 7", "8h", f"{MONDAY}T05:59:00", True),
        ("0 22 * * 1", "8h", f"{MONDAY}T05:59:00", False),
        ("*/15 * * * *", "5m", f"{MONDAY}T12:49:59", True),
        ("*/15 * * * *", "5m", f"{MONDAY}T12:50:00", False),
        ("10/20 * * * *", "1m", f"{MONDAY}T12:30:30", True),
        ("0 0 1 * *", "24h", "2026-03-01T13:00:00", True),
        ("0 0 1 * *", "24h", f"{MONDAY}T13:00:00", False),
        ("0 0 1 * 1", "24h", f"{MONDAY}T13:00:00", True),
        ("0 0 31 12 *", "48h", "2027-01-01T13:00:00", True),
        ("0 0 29 2 *", "24h", "2028-02-29T01:00:00", True),
        ("0 0 1 3 *", "168h", "2026-03-07T23:59:00", True),
        ("30 9,18 * * *", "1h", f"{MONDAY}T18:31:00", True),
    ],
)
def test_when_a_peak_holds(cron: str, duration: str, moment: str, holds: bool) -> None:
    spec = peaks({"cron": cron, "duration": duration, "decode": 5})
    assert minimum(spec.spec.autoscaling.schedule, "decode", at(moment)) == (5 if holds else 0)


def test_the_largest_of_those_that_overlap_counts_and_only_for_its_role() -> None:
    spec = peaks(
        {"cron": "0 8 * * *", "duration": "4h", "decode": 3},
        {"cron": "0 9 * * *", "duration": "1h", "decode": 7, "prefill": 3},
    )
    roles = scheduled(spec, at(f"{MONDAY}T09:30:00")).spec.roles
    assert (roles["decode"].replicas.min, roles["prefill"].replicas.min) == (7, 3)
    roles = scheduled(spec, at(f"{MONDAY}T11:30:00")).spec.roles
    assert (roles["decode"].replicas.min, roles["prefill"].replicas.min) == (3, 2), "the role's own minimum stays"


@pytest.mark.parametrize(
    ("duration", "time", "holds", "because"),
    [
        ("1h", "07:49:59", False, "a start that began now would be over before it"),
        ("1h", "07:50:00", True, "a start takes ten minutes"),
        ("1h", "08:55:00", True, "it lasts"),
        ("1h", "08:59:59", True, "… to its end, though it would be over when a start is"),
        ("1h", "09:00:00", False, "over"),
        ("5m", "07:49:59", False, "shorter than a start: not yet"),
        ("5m", "07:50:00", True, "it begins in ten minutes"),
        ("5m", "07:56:00", True, "what was begun for it is not given up before it comes"),
        ("5m", "07:59:59", True, "the last moment before it"),
        ("5m", "08:00:00", True, "it has begun"),
        ("5m", "08:04:59", True, "its last moment"),
        ("5m", "08:05:00", False, "over"),
    ],
)
def test_it_begins_earlier_by_what_a_start_takes_and_ends_no_sooner(
    duration: str, time: str, holds: bool, because: str
) -> None:
    spec = peaks({"cron": "0 8 * * *", "duration": duration, "decode": 5})
    least = scheduled(spec, at(f"{MONDAY}T{time}"), 600).spec.roles["decode"].replicas.min
    assert least == (5 if holds else 1), because


@pytest.mark.parametrize(
    "cron",
    [
        "0 8 * *",
        "60 8 * * *",
        "0 24 * * *",
        "0 8 0 * *",
        "0 8 * 13 *",
        "0 8 * * 8",
        "5-1 * * * *",
        "*/0 * * * *",
        "-1 * * * *",
        ", * * * *",
    ],
)
def test_what_is_no_moment_is_refused_with_the_field(cron: str) -> None:
    with pytest.raises(NotCron):
        read(cron)


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"cron": "0 25 * * *", "duration": "1h", "decode": 2}, "schedule[0].cron"),
        ({"cron": "0 8 * * *", "duration": "0s", "decode": 2}, "schedule[0].duration"),
        ({"cron": "0 8 * * *", "duration": "200h", "decode": 2}, "schedule[0].duration"),
        ({"cron": "0 8 * * *", "duration": "1h"}, "schedule[0]"),
        ({"cron": "0 8 * * *", "duration": "1h", "decode": 10}, "schedule[0].decode"),
        ({"cron": "0 8 * * *", "duration": "1h", "aggregated": 2}, "schedule[0].aggregated"),
    ],
)
def test_a_peak_that_cannot_be_is_refused(entry: dict[str, Any], field: str) -> None:
    assert [refusal.field for refusal in refusals(peaks(entry), KNOWN)] == [f"spec.autoscaling.{field}"]


def test_standby_needs_room_and_somebody_who_decides() -> None:
    def told(**scaling: Any) -> list[str]:
        bounds = {"decode": {"replicas": {"min": 1, "max": 2}}, "prefill": {"replicas": {"min": 2, "max": 2}}}
        return [r.problem for r in refusals(service({**bounds, "autoscaling": scaling}), KNOWN)]

    assert told(standby=0) == []
    [problem] = told(standby=1)
    assert "spec.prefill.replicas leaves room for 0 beyond min 2; raise max to at least 3" in problem
    assert "mode Off" in told(standby=1, mode="Off")[0]


fields = st.tuples(
    *(
        st.one_of(st.just("*"), st.integers(low, high).map(str), st.integers(2, 20).map(lambda step: f"*/{step}"))
        for low, high in ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6))
    )
)


@given(fields, st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1)), st.integers(1, 2000))
def test_the_latest_moment_is_found_as_by_looking_at_every_minute(
    words: tuple[str, ...], moment: datetime, minutes: int
) -> None:
    cron, now = read(" ".join(words)), moment.replace(tzinfo=UTC)

    def named(one: datetime) -> bool:
        return cron.on(one) and one.hour in cron.hours and one.minute in cron.minutes

    whole = now.replace(second=0, microsecond=0)
    every = (whole - timedelta(minutes=back) for back in range(minutes + 1))
    within = timedelta(minutes=minutes)
    assert cron.latest(now, within) == next((one for one in every if one + within > now and named(one)), None)
