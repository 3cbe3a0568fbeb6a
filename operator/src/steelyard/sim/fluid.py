"""A service under weeks of load, in rates instead of requests: the same policies, fleet and monitoring, on liquid engines.

What decides is what decides everywhere: `control` puts a policy in charge, it looks through `Watch`, acts on `Fleet`; our law
reads the same quarter-second windows. What flows is prompt tokens and sequences:

    prefill   serves P · v tokens/s; who would wait longer than TTFT allows is late from then on (the law's own loss model),
              late ones get a tenth, and what is left over; nobody is prefilled while decode is backed up
    decode    holds N sequences, at most as many a replica as the gateway admits; dN/dt = in − N / (answer · step)

A late request has missed TTFT. TPOT is kept by admission. Late work is counted in requests as the longest prompts. Not in here:
prefix caches, preemption, failures, single slow requests, one pool that does both. Tests hold it to the simulation of requests.
"""

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop
from math import exp

from steelyard.decide.queue.backlog import LATE_CREDIT
from steelyard.decide.queue.windows import WINDOW_SECONDS, WINDOWS, ArrivalWindows
from steelyard.sim.flow import STEP_SECONDS, Flow
from steelyard.sim.gateway import CONVERTING_SHARE, Gateway, admitted
from steelyard.sim.policies.policy import Policy
from steelyard.sim.replica import Replica
from steelyard.sim.requests import Arrival
from steelyard.sim.router import Depth, Direct
from steelyard.sim.run import Result, control
from steelyard.sim.scenario import DECODE, PREFILL, Scenario
from steelyard.sim.world import World

WINDOWS_A_STEP = round(STEP_SECONDS / WINDOW_SECONDS)
EMPTY = 0.5  # sequences: fewer are none
MEMORY_SECONDS = 20.0  # over which the lost share of the work is averaged, to count it in requests
TELL_EVERY = 24 * 3600.0  # seconds between two words of progress


class Liquid(Replica):
    """One replica's share of what flows; `told` brings what monitoring sees up to date."""

    def __init__(self, *arguments: object) -> None:
        """Begin empty."""
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.load = 0.0  # sequences
        self.made = self.spent = 0.0  # tokens generated, and the steps that each took
        self.prompts = self.prompt_tokens = self.prompt_seconds = 0.0

    def told(self, context: float) -> None:
        """Whole numbers, as engines report them."""
        self.running, self.kv = round(self.load), round(self.load * context)
        self._generated, self._token_seconds = int(self.made), self.spent
        self.prefills = (int(self.prompts), int(self.prompt_tokens), self.prompt_seconds)
        self._busy_seconds = self.prompt_seconds

    def idle(self) -> bool:
        """Whether no sequence is left."""
        return self.load < EMPTY


class StepWindows(ArrivalWindows):
    """Arrival windows made from the tokens of whole steps, spread evenly; only when somebody asks, which few policies do."""

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()
        self.steps = deque([0.0] * (WINDOWS // WINDOWS_A_STEP), WINDOWS // WINDOWS_A_STEP)

    def complete(self, now_seconds: float) -> tuple[float, list[float]]:
        """As `ArrivalWindows.complete`, at the end of a step."""
        return now_seconds, [tokens / WINDOWS_A_STEP for tokens in self.steps for _ in range(WINDOWS_A_STEP)]


class Fluid(World):
    """The world of one scenario and one load."""

    def __init__(self, scenario: Scenario, flow: Flow) -> None:
        """Raises ValueError where the scenario has what cannot flow."""
        if scenario.aggregated:
            raise ValueError(
                "the fluid mode knows prefill and decode replicas only; simulate requests for aggregated ones"
            )
        if scenario.failures or scenario.client_timeout_seconds is not None:
            raise ValueError("the fluid mode has no failures and no clients that give up; simulate requests for these")
        self.flow = flow
        lengths, back = flow.lengths, scenario.engine_of(DECODE)
        self._context = lengths.prompt + lengths.answer / 2
        self._slots = admitted(back, self._context, scenario.objectives.tpot_seconds)
        self._step_of: Callable[[float], float] = lambda n: back.step_seconds(max(1, round(n)), n * self._context)
        pass_seconds = scenario.engine_of(PREFILL).prompt_seconds(round(lengths.prompt))
        self._velocity = lengths.prompt / pass_seconds
        budget = scenario.ttft_budget
        # Who is late are mostly the long ones: a prompt as long as the one that a token belongs to on average has to be computed,
        # behind half of another pass.
        last = scenario.engine_of(PREFILL).prompt_seconds(round(lengths.prompt * lengths.square)) + pass_seconds / 2
        self._patience = None if budget is None else max(0.0, budget - last)
        self._reading: list[Liquid] = []
        self._writing: list[Liquid] = []
        self._leaving: list[Liquid] = []  # have sequences, take no more
        self._backlog = self._late = 0.0  # prompt tokens
        self._sequences = self._waiting = self._waiting_late = 0.0
        self._step_seconds = self._step_of(1.0)
        self._arrived = self._ended = self._lost = 0.0  # requests in all
        self._over = self._came = 0.0  # tokens late and arrived, averaged over the last seconds
        self._served = self._made = self._spent = self._accounted = 0.0  # since the last account, and when that was
        super().__init__(scenario, lambda world, name, role, cache: Liquid(name, role, scenario.engine_of(role), world, cache),
                         router=Direct(round_robin=True, aggregated=False))  # fmt: skip
        self._windows = StepWindows()
        self.gateways = [Gateway(scenario, 0)]
        self.gateways[0].windows = self._windows

    def run(self, arrivals: Iterable[Arrival], progress: Callable[[Arrival], None] | None = None) -> None:
        """Let the load flow to its end; `arrivals` are of no meaning here, `progress` is told once a day of it."""
        events, steps = self._events, self._windows.steps
        self._next = Arrival(self.flow.end, 1, 1)  # keeps the regular callbacks going
        tell = TELL_EVERY
        for number, tokens in enumerate(self.flow.steps()):
            now = number * STEP_SECONDS
            if events and events[0][0] <= now:
                self._account()
                while events and events[0][0] <= now:
                    when, _, handler, arguments = heappop(events)
                    self.now = when
                    handler(when, *arguments)
            self.now = now
            steps.append(tokens)
            self._pass_on(self._read(tokens))
            if progress is not None and now >= tell:
                progress(Arrival(now, 1, 1))
                tell += TELL_EVERY
        self._next = None
        self._ended = self._arrived
        self._account()

    # --- what flows in one step

    def _read(self, tokens: float) -> float:
        """Prefill; return the requests that it finishes."""
        rate = self._rate
        can = rate * STEP_SECONDS if self._waiting + self._waiting_late < self._backed_up else 0.0
        extra = min(self._late, can * LATE_CREDIT / (1 + LATE_CREDIT)) if self._late else 0.0
        backlog = self._backlog + tokens
        done = min(backlog, can - extra)
        backlog -= done
        over = 0.0
        if self._patience is not None and backlog > rate * self._patience:
            over = backlog - rate * self._patience
            backlog -= over
            self._late += over
        extra += min(self._late - extra, can - extra - done)
        self._late -= extra
        self._backlog = backlog
        fade = STEP_SECONDS / MEMORY_SECONDS
        self._over += fade * (over - self._over)
        self._came += fade * (tokens - self._came)
        lengths = self.flow.lengths
        self._arrived += tokens / lengths.prompt
        if over:
            share = min(1.0, self._over / self._came) if self._came > 0 else 1.0
            self._lost += over / lengths.prompt * (lengths.requests(share) / share if share > 0 else 1.0)
        self._served += done + extra
        return (done + extra) / lengths.prompt

    def _pass_on(self, finished: float) -> None:
        """Decode: admit what there is room for, then let sequences end."""
        waiting = self._waiting + finished
        replicas = len(self._writing)
        held = self._sequences
        room = replicas * self._slots
        fade = STEP_SECONDS / (self.flow.lengths.answer * self._step_seconds)
        kept = exp(-fade)
        most = max(0.0, (room - held * kept) * fade / (1 - kept)) if replicas else 0.0
        let = min(waiting + self._waiting_late, most)
        late = max(0.0, let - waiting)  # those who are late come last
        waiting -= let - late
        self._waiting_late -= late
        if self._patience is not None and waiting > 0:
            left = self._patience - (self._backlog / self._rate if self._rate else self._patience)
            able = room / (self.flow.lengths.answer * self._step_seconds) * max(0.0, left)
            if waiting > able:
                self._lost += waiting - able
                self._waiting_late += waiting - able
                waiting = able
        self._waiting = waiting
        after = held * kept + let * (1 - kept) / fade
        self._sequences = after
        if replicas:
            self._step_seconds = self._step_of(after / replicas)
        made = (held + after) / 2 * STEP_SECONDS / self._step_seconds
        self._made += made
        self._spent += made * self._step_seconds
        self._ended += held + let - after

    # --- who carries it

    def _fleet_changed(self, now: float) -> None:
        """Replicas that leave decode take their share along; those that join share with the others."""
        self._account()
        before, found = self._writing, [r for r in self.fleet.ready(DECODE) if isinstance(r, Liquid)]
        share = self._sequences / len(before) if before else 0.0
        stay, were = set(found), set(before)
        for replica in before:
            if replica not in stay:
                replica.load = share
                self._leaving.append(replica)
                self._sequences -= share
        for replica in found:
            if replica not in were:
                self._sequences += replica.load
        self._leaving = [r for r in self._leaving if r not in stay]
        self._writing = found
        self._settle()

    def _settle(self) -> None:
        """Who reads: of those that came from decode, only those with few sequences left."""
        ready = [r for r in self.fleet.ready(PREFILL) if isinstance(r, Liquid)]
        self._reading = [r for r in ready if r.load <= CONVERTING_SHARE * self._slots] or ready
        self._rate = len(self._reading) * self._velocity
        self._backed_up = max(1.0, len(self._writing) * self._slots / 2)

    def _account(self) -> None:
        """Share out what flowed since the last time among those that carried it, and write it down. Many replicas may begin at
        one moment, in which nothing flows."""
        if self._accounted == self.now and self.now:
            return
        lengths, reading, writing = self.flow.lengths, self._reading, self._writing
        for replica in reading:
            tokens = self._served / len(reading)
            replica.prompt_tokens += tokens
            replica.prompts += tokens / lengths.prompt
            replica.prompt_seconds += tokens / self._velocity
        for replica in writing:
            replica.load = self._sequences / len(writing)
            replica.made += self._made / len(writing)
            replica.spent += self._spent / len(writing)
        passed, self._accounted = self.now - self._accounted, self.now
        for replica in self._leaving:
            step = self._step_of(replica.load)
            replica.load *= exp(-passed / (lengths.answer * step))
            if replica.load < EMPTY:
                replica.load = 0.0
                self.at(self.now, self._emptied, replica)
        self._leaving = [r for r in self._leaving if r.load]
        self._served = self._made = self._spent = 0.0
        for replica in (*reading, *writing, *self._leaving):
            replica.told(self._context)
        self._settle()
        self._count()

    def _count(self) -> None:
        """The counters that are scraped, in whole requests. A request that is late by now may end later: they never fall."""
        record, lengths = self.record, self.flow.lengths
        record.arrived = int(self._arrived)
        record.arrived_prompt_tokens = record.uncached_tokens = int(self._arrived * lengths.prompt)
        record.completed = record.tpot_met = int(self._ended)
        record.prompt_tokens, record.answer_tokens = (
            int(self._ended * lengths.prompt),
            int(self._ended * lengths.answer),
        )
        record.met = record.ttft_met = max(record.met, int(self._ended - self._lost))

    def _emptied(self, now: float, replica: Liquid) -> None:
        self.fleet.reap(replica, now)

    def depth(self) -> Depth:
        """What waits for prefill, and for decode."""
        prompt = self.flow.lengths.prompt
        tokens = self._backlog + self._late
        decode = round(self._waiting + self._waiting_late)
        return Depth(round(tokens / prompt), tokens, round(self._late / prompt), decode)


def play(scenario: Scenario, flow: Flow, policy: Policy, progress: Callable[[Arrival], None] | None = None) -> Result:
    """Run one policy on one load. Who is still being served at the end has ended well unless late."""
    return control(Fluid(scenario, flow), policy, (), progress)
