"""Every request ends in exactly one class, whatever the server does, and it is the right one."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.load import Arrival, Bounds, Connections, LoadError, Outcome, Record, Spec, Target
from e2e.load.drive import Driver
from e2e.load.exchange import Exchange
from e2e.load.health import Health
from e2e.load.records import Kind, account
from e2e.load.spec import Planned, plan
from e2e.tests.load_fakes import DEEDS, Server

QUICK = Bounds(request=1.2, silence=0.6)


async def drive(
    script: list[str], planned: list[Planned] | None = None, piece: int = 0, **changes: object
) -> tuple[list[Record], Health, Server]:
    """Run a script's requests, 5 ms apart, against the fake server."""
    server = Server(script, piece)
    async with server.serving() as url:
        schedule = tuple(Arrival(0.005 * number, 5, 3) for number in range(len(script)))
        spec = replace(Spec(Target(url, "m"), schedule, bounds=QUICK), **changes)  # type: ignore[arg-type]
        driver = Driver(spec, planned or plan(spec), "127.0.0.1")
        records, health = await driver.run(time.monotonic())
        async with asyncio.timeout(10):  # no connection is left behind
            await server.deserted()
    return records, health, server


@pytest.mark.parametrize("name", DEEDS)
@pytest.mark.parametrize("piece", [0, 7])
def test_each_deed_gets_its_class(name: str, piece: int) -> None:
    records, _, _ = asyncio.run(drive([name], piece=piece))
    assert [(one.outcome, one.kind) for one in records] == [(DEEDS[name].outcome, DEEDS[name].kind)]


@settings(max_examples=10, deadline=None)
@given(
    script=st.lists(st.sampled_from(sorted(DEEDS)), min_size=1, max_size=40),
    leaves=st.lists(st.sampled_from([None, None, 0, 1, 2]), min_size=40, max_size=40),
    connections=st.sampled_from(Connections),
)
def test_every_request_ends_once(script: list[str], leaves: list[int | None], connections: Connections) -> None:
    planned = [
        Planned(n, Arrival(0.005 * n, 5, 3), leave) for n, leave in zip(range(len(script)), leaves, strict=False)
    ]
    records, _, server = asyncio.run(drive(script, planned, connections=connections))
    ordered = account(records, len(script))
    assert Counter(server.asked) == Counter(range(len(script))), "each is sent once"
    for name, record, leave in zip(script, ordered, leaves, strict=False):
        if leave is not None and record.outcome is Outcome.CANCELLED:
            assert record.kind == Kind.PLANNED
        else:
            assert (record.outcome, record.kind) == (DEEDS[name].outcome, DEEDS[name].kind)
        assert record.ended is not None
        assert record.sent is not None
        assert record.scheduled <= record.sent <= record.ended
        if record.outcome is Outcome.COMPLETED:
            assert record.first_token is not None
            assert record.last_token is not None
            assert record.sent <= record.first_token <= record.last_token <= record.ended


@pytest.mark.parametrize(
    ("leave", "deed", "because"),
    [
        (0, "never answers", "it leaves while it waits"),
        (1, "stops in the stream", "it leaves at its token, long before the bound of silence"),
    ],
)
def test_a_client_that_leaves_is_cancelled(leave: int, deed: str, because: str) -> None:
    planned = [Planned(0, Arrival(0.0, 5, 3), leave)]
    records, _, _ = asyncio.run(drive([deed], planned, bounds=Bounds(60, 60)))
    assert (records[0].outcome, records[0].kind) == (Outcome.CANCELLED, Kind.PLANNED), because


ENDINGS: dict[str, tuple[Callable[[Exchange], None], Outcome]] = {
    "cannot connect": (lambda one: one.answer_failed(Kind.UNREACHABLE, ""), Outcome.FAILED),
    "breaks": (lambda one: one.answer_failed(Kind.CUT, ""), Outcome.FAILED),
    "error": (lambda one: one.answer_end(), Outcome.FAILED),
    "stopped": (lambda one: one.cancel(Kind.STOPPED), Outcome.CANCELLED),
    "silence": (lambda one: one.check(1.0), Outcome.HUNG),
}


@given(names=st.lists(st.sampled_from(sorted(ENDINGS)), min_size=1, max_size=6))
def test_the_first_ending_of_an_exchange_is_its_only_one(names: list[str]) -> None:
    records: list[Record] = []
    planned = Planned(0, Arrival(0, 5, 3))
    exchange = Exchange(planned, Bounds(10, 1), 1.0, lambda: 0.0, lambda one, record: records.append(record))
    exchange.begin()
    for name in names:  # a connection may fail after we have given it up, a bound pass while we stop
        ENDINGS[name][0](exchange)
    assert [record.outcome for record in records] == [ENDINGS[names[0]][1]]


def test_nobody_listens() -> None:
    async def run() -> list[Record]:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        spec = Spec(Target(f"http://127.0.0.1:{port}", "m"), (Arrival(0, 5, 3),))
        return (await Driver(spec, plan(spec), "127.0.0.1").run(time.monotonic()))[0]

    records = asyncio.run(run())
    assert [(one.outcome, one.kind) for one in records] == [(Outcome.FAILED, Kind.UNREACHABLE)]


@pytest.mark.parametrize("now", [False, True])
def test_a_stopped_run_accounts_for_what_it_did_not_send(now: bool) -> None:
    async def run() -> list[Record]:
        server = Server(["never answers", "good"])
        async with server.serving() as url:
            spec = Spec(Target(url, "m"), (Arrival(0, 5, 3), Arrival(3600, 5, 3)), bounds=QUICK)
            driver = Driver(spec, plan(spec), "127.0.0.1")
            running = asyncio.create_task(driver.run(time.monotonic()))
            while not server.asked:
                await asyncio.sleep(0.01)
            driver.stop(now)
            return (await running)[0]

    first, second = account(asyncio.run(run()), 2)
    assert (first.outcome, first.kind) == ((Outcome.CANCELLED, Kind.STOPPED) if now else (Outcome.HUNG, None))
    assert (second.outcome, second.kind, second.sent) == (Outcome.CANCELLED, Kind.UNSENT, None)


def test_slow_readers_still_get_everything() -> None:
    script = ["good"] * 3
    planned = [Planned(n, Arrival(0, 5, 3), slow=True) for n in range(3)]
    records, _, _ = asyncio.run(drive(script, planned, bounds=Bounds(30, 30)))
    assert [(one.outcome, one.slow, one.tokens) for one in records] == [(Outcome.COMPLETED, True, 3)] * 3


@pytest.mark.parametrize("connections", Connections)
def test_connections_are_kept_only_where_asked(connections: Connections) -> None:
    planned = [Planned(n, Arrival(0.15 * n, 5, 3)) for n in range(4)]
    records, _, server = asyncio.run(drive(["good, then open"] * 4, planned, connections=connections))
    assert {one.outcome for one in records} == {Outcome.COMPLETED}
    assert (server.accepted == 4) is (connections is Connections.FRESH)


@pytest.mark.parametrize("indices", [[0, 2], [0, 1, 1, 2], []])
def test_a_client_that_loses_count_says_so(indices: list[int]) -> None:
    records, _, _ = asyncio.run(drive(["good"]))
    with pytest.raises(LoadError, match="lost count"):
        account([replace(records[0], index=index) for index in indices], 3)
