"""Figures: times of a request, percentiles, attainment, the verdict on the client, the report."""

from __future__ import annotations

import asyncio
import json
import re
import time
import xml.etree.ElementTree as xml
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.load import Arrival, Kind, Objectives, Outcome, Record, Result, Spec, Target, summarise
from e2e.load.drive import Driver
from e2e.load.health import Health, Second, judge
from e2e.load.output import write
from e2e.load.running import Mark
from e2e.load.spec import plan
from e2e.load.summary import attainment, repeated_ids, spread, under_way
from e2e.load.wording import facts
from e2e.tests.load_fakes import Server

DONE = Record(
    index=0, outcome=Outcome.COMPLETED, kind=None, scheduled=1.0, sent=1.001, connected=1.002, first_byte=1.2, first_token=1.2,
    last_token=2.2, ended=2.3, status=200, prompt_tokens=10, output_tokens=11, prompt_tokens_read=10, tokens=11, events=11,
    longest_gap=0.2, slow=False, answer_id="a", digest="d", detail=None,
)  # fmt: skip
LOST = replace(
    DONE,
    outcome=Outcome.FAILED,
    kind="cut",
    first_token=None,
    last_token=None,
    tokens=0,
    longest_gap=None,
    answer_id=None,
    digest=None,
)
CALM = Health(wall=10.0, cpu=1.0, loop_lags=(0.001,) * 500, seconds=(Second(0.0, 0.001, 0.1),))


def result(*records: Record, objectives: Objectives | None = None, marks: tuple[Mark, ...] = ()) -> Result:
    numbered = tuple(replace(one, index=index) for index, one in enumerate(records))
    schedule = tuple(Arrival(one.scheduled, 10, 11) for one in numbered)
    spec = Spec(Target("http://h:1", "m", api_key="secret"), schedule, objectives=objectives or Objectives())
    return Result(spec, datetime(2030, 1, 2, tzinfo=UTC), numbered, (CALM,), marks)


def test_times_of_a_request() -> None:
    assert DONE.ttft == pytest.approx(0.2)
    assert DONE.ttft_from_sent == pytest.approx(0.199)
    assert DONE.tpot == pytest.approx(0.1), "ten gaps between eleven tokens"
    assert DONE.seconds == pytest.approx(1.3)
    assert replace(DONE, tokens=1).tpot is None
    assert LOST.ttft is None


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_percentiles_are_ordered_and_split_the_figures(figures: list[float]) -> None:
    found = spread([*figures, None])
    assert found is not None
    assert found.count == len(figures)
    assert min(figures) <= found.p50 <= found.p90 <= found.p95 <= found.p99 <= found.max == max(figures)
    for share, percentile in ((0.5, found.p50), (0.9, found.p90), (0.99, found.p99)):
        assert sum(figure <= percentile * (1 + 1e-12) for figure in figures) >= int(share * (len(figures) - 1)) + 1
        assert (
            sum(figure >= percentile * (1 - 1e-12) for figure in figures) >= int((1 - share) * (len(figures) - 1)) + 1
        )


def test_percentiles_are_interpolated_and_nothing_has_none() -> None:
    found = spread(float(number) for number in range(101))
    assert found is not None
    assert (found.p50, found.p90, found.p99, found.mean) == (50, 90, 99, 50)
    assert spread([None]) is None


BOTH = Objectives(ttft=0.5, tpot=0.15)
LATE = replace(DONE, first_token=1.6, last_token=2.0)
SLUGGISH = replace(DONE, last_token=4.2)


@pytest.mark.parametrize(
    ("records", "objectives", "expected", "because"),
    [
        ([DONE], BOTH, (1, 1.0, 1.0, 1.0), "it meets both"),
        ([DONE, LATE], BOTH, (2, 0.5, 1.0, 0.5), "one is late"),
        ([LATE, SLUGGISH], BOTH, (2, 0.5, 0.5, 0.0), "one lacks the one, the other the other"),
        ([DONE, LOST], BOTH, (2, 0.5, 0.5, 0.5), "what failed has met nothing"),
        ([DONE, replace(LOST, outcome=Outcome.REFUSED)], BOTH, (2, 0.5, 0.5, 0.5), "nor what was refused"),
        (
            [DONE, replace(DONE, outcome=Outcome.TIMED_OUT)],
            BOTH,
            (2, 0.5, 0.5, 0.5),
            "nor what began well and timed out",
        ),
        ([DONE, replace(LATE, outcome=Outcome.CANCELLED)], BOTH, (1, 1.0, 1.0, 1.0), "what we left does not count"),
        ([DONE, replace(LATE, slow=True)], BOTH, (1, 1.0, 1.0, 1.0), "what we read slowly is our own time"),
        ([replace(DONE, tokens=1, last_token=1.2)], BOTH, (1, 1.0, 1.0, 1.0), "one token meets any TPOT"),
        ([DONE, LATE], Objectives(tpot=0.15), (2, None, 1.0, 1.0), "no objective, no share"),
        ([DONE], Objectives(), (1, None, None, None), "none at all"),
        ([replace(DONE, outcome=Outcome.CANCELLED)], BOTH, (0, None, None, None), "nothing was judged"),
    ],
)
def test_attainment(
    records: list[Record], objectives: Objectives, expected: tuple[int, float, float, float], because: str
) -> None:
    found = attainment(records, objectives)
    assert (found.judged, found.ttft, found.tpot, found.both) == expected, because


def test_an_id_that_comes_twice_is_a_duplicate() -> None:
    assert repeated_ids([DONE, DONE, replace(DONE, answer_id="b"), LOST]) == 1
    assert summarise(result(DONE, DONE, replace(LOST, kind=str(Kind.DUPLICATED)))).duplicated == 2


def test_under_way_counts_from_sending_to_the_end() -> None:
    line = under_way(
        [DONE, replace(DONE, sent=1.5, ended=1.7), replace(DONE, sent=2.3, ended=2.4), replace(DONE, sent=None)]
    )
    assert line == [(1.001, 1), (1.5, 2), (1.7, 1), (2.3, 0), (2.3, 1), (2.4, 0)]


@pytest.mark.parametrize(
    ("records", "health", "says", "because"),
    [
        ([DONE] * 200, CALM, "", "it kept up"),
        ([DONE] * 99 + [replace(DONE, sent=1.5)] * 1, CALM, "", "one request in a hundred is not more than one"),
        ([DONE] * 90 + [replace(DONE, sent=1.5)] * 10, CALM, "500 ms late", "it sent late"),
        ([replace(DONE, sent=1.015)] * 99, CALM, "", "15 ms are less than a tenth of its 185 ms to the first token"),
        ([replace(DONE, sent=1.015, first_token=1.1)] * 99, CALM, "15 ms late", "but not of 85 ms"),
        ([replace(LOST, sent=1.015)] * 99, CALM, "15 ms late", "and without answers 10 ms are allowed"),
        ([DONE] * 9, replace(CALM, loop_lags=(0.001,) * 90 + (0.05,) * 10), "loop was 50 ms", "its loop was late"),
        ([DONE] * 9, replace(CALM, cpu=9.0), "90% of a core", "it had no CPU left"),
        ([replace(DONE, sent=None)], CALM, "", "nothing was sent"),
    ],
)
def test_the_verdict_on_the_client(records: list[Record], health: Health, says: str, because: str) -> None:
    verdict = judge(records, [CALM, health])
    assert verdict.client_bottleneck is bool(says), because
    assert says in "".join(verdict.reasons)


def test_a_client_that_was_held_up_says_so() -> None:
    async def run() -> tuple[list[Record], Health]:
        server = Server(["good"] * 20)
        async with server.serving() as url:
            spec = Spec(Target(url, "m"), tuple(Arrival(0.01 * number, 5, 3) for number in range(20)))
            asyncio.get_running_loop().call_later(0.03, time.sleep, 0.3)
            return await Driver(spec, plan(spec), "127.0.0.1").run(time.monotonic())

    records, health = asyncio.run(run())
    verdict = judge(records, [health])
    assert {one.outcome for one in records} == {Outcome.COMPLETED}
    assert verdict.client_bottleneck
    assert verdict.loop_lag_max > 0.2
    assert verdict.send_lag_max > 0.1
    late = max(records, key=lambda one: (one.sent or 0) - one.scheduled)
    assert late.ttft is not None
    assert late.ttft_from_sent is not None
    assert late.ttft > late.ttft_from_sent + 0.1, "the schedule's figure shows what the other hides"


class _Page(HTMLParser):
    """Checks that tags close, and gathers the text."""

    VOID = frozenset({"meta", "br", "link", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


MIXED = [
    *[replace(DONE, scheduled=0.1 * n, sent=0.1 * n, first_token=0.1 * n + 0.2, last_token=0.1 * n + 1, ended=0.1 * n + 1)
      for n in range(50)],
    replace(LOST, scheduled=2.0, sent=2.0, ended=2.5, detail="<script>alert(1)</script>"),
    replace(LOST, outcome=Outcome.HUNG, kind=None, scheduled=3.0, sent=3.0, ended=5.0, status=None),
    replace(DONE, slow=True),
]  # fmt: skip


@pytest.mark.parametrize(
    "records",
    [MIXED, [DONE], [LOST], [replace(LOST, outcome=Outcome.CANCELLED, kind="unsent", sent=None, ended=None)]],
    ids=["mixed", "one", "none answered", "none sent"],
)
def test_the_files_of_a_run(records: list[Record], tmp_path: Path) -> None:
    run = result(*records, objectives=BOTH, marks=(Mark(1.5, "pod <a> killed"),))
    summary = summarise(run)
    write(run, summary, tmp_path)

    lines = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert [line["index"] for line in lines] == list(range(len(records)))
    assert [line["outcome"] for line in lines] == [str(one.outcome) for one in records]

    document = json.loads((tmp_path / "summary.json").read_text())
    assert sum(document["outcomes"].values()) == len(records) == document["requests"]
    assert document["client_bottleneck"] is False
    assert document["marks"] == [{"at": 1.5, "text": "pod <a> killed"}]

    text = (tmp_path / "report.html").read_text()
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert "pod <a> killed" in "".join(page.text)
    assert len(page.ids) == len(set(page.ids)), "ids of several plots do not meet"
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 6
    for drawing in drawings:
        xml.fromstring(drawing)
        for used in re.findall(r'(?:"#|url\(#)([^")]+)', drawing):
            assert used in page.ids, "what a plot refers to is in the page"
    assert "<script" not in text
    assert not re.search(r'(?:src|href)="(?!#)', text), "nothing is fetched"
    for file in tmp_path.iterdir():
        assert "secret" not in file.read_text()


def test_a_slow_client_is_told_loudly() -> None:
    run = replace(result(DONE), healths=(replace(CALM, cpu=9.9),))
    summary = summarise(run)
    from e2e.load.report import html

    assert summary.document()["client_bottleneck"] is True
    assert "The client was the bottleneck" in html(run, summary)
    assert "99% of a core" in facts(summary)[-1]
