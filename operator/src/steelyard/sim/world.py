"""One run: the clock, the events, and everybody who acts on them.

The only order is time; events of one time happen in the order in which they were asked for, so a run is a function of its
scenario, its arrivals and its policy. Arrivals are drawn one by one from an iterator: memory holds what is in flight.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any

from steelyard.decide.queue.judge import Outcome
from steelyard.sim.fleet import Fleet
from steelyard.sim.gateway import Gateway
from steelyard.sim.prefix import PrefixCache
from steelyard.sim.record import Record
from steelyard.sim.replica import Replica
from steelyard.sim.requests import Arrival, Request
from steelyard.sim.router import Depth, Direct, Router
from steelyard.sim.scenario import AGGREGATED, DECODE, PREFILL, Routing, Scenario
from steelyard.sim.wspt import Wspt

Handler = Callable[..., None]


class World:
    """A service under load."""

    def __init__(
        self,
        scenario: Scenario,
        make: Callable[["World", str, str, PrefixCache | None], Replica] | None = None,
        router: Router | None = None,
    ) -> None:
        """`make` and `router` may put another simulator's engine and router in the place of ours (evidence does)."""
        self.scenario = scenario
        self.now = 0.0
        self.longest = scenario.longest
        self.record = Record(scenario.objectives)
        self.requests: dict[int, Request] = {}  # in flight
        self._patient: deque[Request] = deque()  # whose clients would give up, in that order; ended ones too
        self._events: list[tuple[float, int, Handler, tuple[Any, ...]]] = []
        self._serial = 0
        self._arrivals: Iterator[Arrival] = iter(())
        self._next: Arrival | None = None
        self._turn = 0
        self._regular = 0  # regular callbacks, each of which has one event ahead
        self.gateways: list[Gateway] = []
        self.routers: list[Router]
        if router is not None:
            self.routers = [router]
        elif scenario.routing is Routing.GATEWAY:
            self.gateways = [Gateway(scenario, number) for number in range(scenario.gateways)]
            self.routers = [*self.gateways]
        elif scenario.routing is Routing.WSPT:
            self.routers = [Wspt(aggregated=scenario.aggregated)]
        else:
            self.routers = [Direct(round_robin=scenario.routing is Routing.ROUND_ROBIN, aggregated=scenario.aggregated)]

        def build(name: str, role: str, cache: PrefixCache | None) -> Replica:
            return make(self, name, role, cache) if make else Replica(name, role, scenario.engine_of(role), self, cache)

        self.fleet = Fleet(scenario, self, self._fleet_changed, build)
        self._fleet_changed(0.0)
        for failure in scenario.failures:
            self.at(failure.at, self._fail, failure.role)

    # --- the clock

    def at(self, when: float, handler: Handler, *arguments: Any) -> None:
        """Have `handler(when, *arguments)` called at that time, not before now."""
        self._serial += 1
        heappush(self._events, (when if when > self.now else self.now, self._serial, handler, arguments))

    def every(self, seconds: float, tick: Callable[[float], None]) -> None:
        """Have `tick(now)` called regularly for as long as anything else can happen."""
        self._regular += 1

        def beat(now: float) -> None:
            tick(now)
            if self._next is not None or len(self._events) >= self._regular:  # this beat itself is off the heap
                self.at(now + seconds, beat)
            else:
                self._regular -= 1

        self.at(self.now + seconds, beat)

    def run(self, arrivals: Iterable[Arrival], progress: Callable[[Arrival], None] | None = None) -> None:
        """Serve everybody. Whoever is left when nothing can happen any more has failed."""
        self._arrivals = iter(arrivals)
        self._next = next(self._arrivals, None)
        events = self._events
        while True:
            arrival = self._next
            if arrival is not None and (not events or arrival.at <= events[0][0]):
                self.now = max(self.now, arrival.at)
                self._next = next(self._arrivals, None)
                self._arrive(arrival)
                if progress is not None:
                    progress(arrival)
            elif events and (arrival is not None or self.requests):
                when, _, handler, arguments = heappop(events)
                self.now = when
                handler(when, *arguments)
            else:
                break
        for request in list(self.requests.values()):
            self._end(request, Outcome.FAILED, self.now)

    # --- requests

    def _arrive(self, arrival: Arrival) -> None:
        request = Request(self.record.arrived, arrival)
        self.record.arrive(request)
        self.requests[request.key] = request
        if request.prompt + request.answer > self.longest or request.answer < 1:
            self._end(request, Outcome.REFUSED, self.now)  # longer than any replica could hold
            return
        if self.scenario.client_timeout_seconds is not None:
            self._patient.append(request)
            if len(self._patient) == 1:
                self.at(request.arrived + self.scenario.client_timeout_seconds, self._give_up)
        self._turn += 1
        request.router = self._turn % len(self.routers)
        self.routers[request.router].arrive(request, self.now)

    def prefilled(self, request: Request, now: float) -> None:
        """A prompt is computed."""
        self.routers[request.router].prefilled(request, now)

    def answered(self, request: Request, now: float) -> None:
        """A request that stays where it is has its first token."""
        self.routers[request.router].answered(request, now)

    def completed(self, request: Request, now: float) -> None:
        """An answer is complete."""
        self._end(request, Outcome.COMPLETED, now)

    def _end(self, request: Request, outcome: Outcome, now: float) -> None:
        del self.requests[request.key]
        self.record.end(request, outcome, now)
        if request.held_by is not None:
            request.held_by.release(request, now)
        self.routers[request.router].ended(request, now)

    def _give_up(self, now: float) -> None:
        """The clients whose time is over leave; one event waits for the next of them."""
        patience = self.scenario.client_timeout_seconds or 0.0
        patient = self._patient
        while patient and (patient[0].key not in self.requests or patient[0].arrived + patience <= now):
            request = patient.popleft()
            if request.key in self.requests:
                self.record.gave_up += 1
                if request.replica is not None:
                    request.replica.leave(request, now)
                self._end(request, Outcome.FAILED, now)
        if patient:
            self.at(patient[0].arrived + patience, self._give_up)

    def passed(self, replica: Replica, now: float) -> None:
        """A pass is over: the queues may send more."""
        for router in self.routers:
            router.pump(now)
        if self.fleet.draining:
            self.at(now, self._reap, replica)

    def _reap(self, now: float, replica: Replica) -> None:
        self.fleet.reap(replica, now)

    # --- replicas

    def _fleet_changed(self, now: float) -> None:
        if self.scenario.aggregated:
            prefill = decode = self.fleet.ready(AGGREGATED)
        else:
            prefill, decode = self.fleet.ready(PREFILL), self.fleet.ready(DECODE)
        for router in self.routers:
            router.use(prefill, decode, now)

    def _fail(self, now: float, role: str) -> None:
        found = self.fleet.fail(role, now)
        if found is None:
            return
        dead, lost = found
        self._fleet_changed(now)
        for request in lost:
            if request.gone:
                continue
            if request.first is not None and request.first <= now:  # its client has read part of the answer
                if request.replica is not None and request.replica is not dead:
                    request.replica.cancel(request)
                self._end(request, Outcome.FAILED, now)
            elif request.held_by is dead or request.replica is not dead:
                self._recompute(request, dead, now)
            elif request.retried:
                self._end(request, Outcome.FAILED, now)
            else:
                self._retry(request, now)
        for router in self.routers:
            router.pump(now)

    def _recompute(self, request: Request, dead: Replica, now: float) -> None:
        """Its KV was kept by the replica that died: whoever decodes it computes its prompt again."""
        target, decoding = request.replica, request.decoding
        if target is dead and decoding:
            self._retry(request, now)
            return
        request.start_over()
        if decoding and target is not None:
            target.cancel(request)
            target.prefill(request, now, local=True)
            request.decoding = True

    def _retry(self, request: Request, now: float) -> None:
        """The replica that served it died before its client had anything: once more, elsewhere."""
        if request.held_by is not None:
            request.held_by.release(request, now)
        decoding = request.decoding
        request.start_over()
        request.retried = True
        self.record.retries += 1
        self.routers[request.router].lost(request, now, decoding=decoding)

    def depth(self) -> Depth:
        """What waits in all routers."""
        depths = [router.depth() for router in self.routers]
        return Depth(*(sum(values) for values in zip(*depths, strict=True)))
