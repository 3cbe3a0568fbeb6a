"""The autoscaler's tick, for all services at once: observe → decide → apply → report.

Queries first, a constant number of them; then each service by itself: what goes wrong with one is told and leaves the
others alone. Nothing here decides: the law is `decide/scale`, what is told is `decide/scaling`. Runs in one thread, on the
leader only; what it keeps in mind may be lost at any time, since it resumes from what runs and from status.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from steelyard.api.accelerator import Accelerator
from steelyard.api.labels import DECODE
from steelyard.api.service import InferenceService
from steelyard.apply.admission import admit, remind
from steelyard.apply.carry_out import carry_out
from steelyard.apply.report import AUTOSCALER, SCALED_CONDITIONS, tell, write_status
from steelyard.decide import attained as goals
from steelyard.decide import grouped, scaling, slots
from steelyard.decide.conditions import Verdict
from steelyard.decide.freshness import Scraped, metrics_fresh
from steelyard.decide.rollout_pause import WINDOW_SECONDS, Judged
from steelyard.decide.scale import law, steps, stored
from steelyard.decide.scale.decision import Decision, Memory
from steelyard.decide.scale.learning import start_seconds
from steelyard.decide.scale.signals import Phase, Service, Signals
from steelyard.decide.scale.spec import scaled
from steelyard.decide.schedule import scheduled
from steelyard.decide.status import Note, condition, previous_conditions, scaling_transitions
from steelyard.observe import attainment, demand, readings
from steelyard.observe.answers import Unanswered, Vector
from steelyard.observe.client import Api, ApiError, NotLeading
from steelyard.observe.prometheus import Ask, Query
from steelyard.observe.readings import Readings, span_of
from steelyard.observe.signals import Kept, fresh_seconds, signals
from steelyard.run import metrics
from steelyard.run.fleet import Fleet, Key, View

log = logging.getLogger(__name__)

PARALLEL = 8  # queries, and gateways asked, at the same time
FIGURES_SECONDS = 60.0


@dataclass(slots=True)
class _Known:
    """What is kept of one service from tick to tick."""

    memory: Memory
    kept: Kept = field(default_factory=Kept)
    unmatched: int = 0
    attained: goals.Attained | None = None
    written: dict[str, Any] | None = None  # the autoscaler's part of the status, as it wrote it last
    admitted_at: float = float("-inf")  # when the gateways were told their decode slots last
    asked: tuple[InferenceService, Mapping[str, Accelerator | None], Service] | None = None

    def scaled(self, service: InferenceService, accelerators: Mapping[str, Accelerator | None]) -> Service:
        """What a spec asks of the law; worked out anew where a reconcile has put other objects in its place."""
        if self.asked is None or self.asked[0] is not service or self.asked[1] is not accelerators:
            self.asked = (service, accelerators, scaled(service, accelerators))
        return self.asked[2]


@dataclass
class Autoscaler:
    """Decides for every service of `fleet`; `look` begins a look at Prometheus, `windows` asks one gateway by its address."""

    api: Api
    fleet: Fleet
    look: Callable[[], Ask]
    windows: Callable[[str], demand.Windows | None]
    reporter: str
    tick_seconds: float
    _known: dict[Key, _Known] = field(default_factory=dict)
    _figures_at: float = float("-inf")
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(PARALLEL, thread_name_prefix="observe")
    )

    def reset(self) -> None:
        """Forget what was kept in mind: another replica leads, and goes on from what runs.

        Views stay: what the other one changes is asked for again by the watches' events.
        """
        self._known.clear()
        self._figures_at = float("-inf")

    def tick(self, now: float) -> None:
        """Decide once for every service at `now` (unix seconds)."""
        started = time.monotonic()
        views = self.fleet.views()
        self._known = {key: self._known.get(key) or _remembered(seen) for key, seen in views.items()}
        if views:
            found = readings.read(_counted(self.look()), self._spans(), self._pool)
            if now - self._figures_at >= FIGURES_SECONDS and found.reached:
                self._figures_at = now
                self._measure(views)
            self._judge_rollouts(views, now)
            addresses = ((key, [gateway.address for gateway in seen.pods.gateways]) for key, seen in views.items())
            for key, arrivals in demand.ask_all(self.windows, addresses, now, self._pool):
                with _guarded(key):
                    self._serve(key, views[key], found, arrivals, now)
            for gone in views.keys() - self.fleet.views().keys():
                # Deleted meanwhile: what this tick told of it nobody else would take back.
                metrics.forget_service(*gone)
        metrics.TICK_SECONDS.observe(time.monotonic() - started)
        metrics.TICK_INTERVAL_SECONDS.set(self.tick_seconds)

    def _spans(self) -> set[int]:
        return {span_of(known.kept.interval) for known in self._known.values()}

    def _measure(self, views: dict[Key, View]) -> None:
        """Count attainment anew for all services."""
        wanted = {key: seen.service.spec.objectives for key, seen in views.items() if seen.service is not None}
        windows = {key: attainment.window_of(asked.window.seconds) for key, asked in wanted.items()}
        figures = attainment.read(_counted(self.look()), set(windows.values()), self._pool)
        for key, window in windows.items():
            seen = views[key]
            if window in figures and seen.service is not None:
                with _guarded(key):
                    promised = scaled(seen.service, seen.accelerators).objectives
                    found = attainment.attained(seen.pods, figures[window], promised)
                    self._known[key].attained = found
                    metrics.show_attainment(*key, found)

    def _judge_rollouts(self, views: dict[Key, View], now: float) -> None:
        """Count the latest requests of the services whose rollouts wait for their objectives; asks nothing where there are none."""
        rolling = [key for key in self.fleet.watched() if key in views and views[key].asks is not None]
        figures = attainment.read(_counted(self.look()), {WINDOW_SECONDS}, self._pool) if rolling else {}
        for key in rolling if figures else ():
            with _guarded(key):
                self._judge(key, views[key], figures[WINDOW_SECONDS], now)

    def _judge(self, key: Key, seen: View, figures: attainment.Figures, now: float) -> None:
        assert seen.asks is not None
        found = attainment.attained(seen.pods, figures, scaled(seen.asks, seen.accelerators).objectives)
        if found is not None and found.met is not None and found.requests is not None:
            self.fleet.judge(key, Judged(found.met * found.requests, found.requests, now))

    def _serve(self, key: Key, seen: View, found: Readings, arrivals: tuple[float, ...] | None, now: float) -> None:
        known = self._known[key]
        signal, known.kept = signals(seen.pods, found, arrivals, known.kept, now, self.tick_seconds)
        verdicts = [self._fresh(key, signal, found, known)]
        decision = None
        if seen.service is None:
            return
        lead = start_seconds(known.memory.learnt, prior=0.0)  # known peaks are begun that much earlier
        spec = known.scaled(scheduled(seen.service, now, lead), seen.accelerators)
        metrics.show_promise(*key, spec.objectives, spec.limits, Counter(r.role for r in signal.replicas))
        if spec.limits.mode != "Off" and set(seen.pods.asked) >= set(spec.limits.roles):
            decision = law.decide(spec, signal, known.memory)
            if seen.rolling:
                decision = steps.growing_only(decision, signal.asked, known.memory)
            if seen.pods.grouped:
                decision = grouped.reachable(decision, signal.replicas, signal.asked, seen.pods.grouped)
            known.memory = decision.memory
            verdicts.append(scaling.limited(decision))
        verdicts.append(goals.objectives_met(seen.service, known.attained))
        if decision is not None:
            done = carry_out(self.api, *key, seen.pods.engines, seen.pods.asked, decision, seen.pods.grouped)
            metrics.count_decision(*key, decision, done.scaled, done.relabelled)
            self._admit(key, seen, signal, decision, known, now)
        self._report(key, seen, signal, decision, verdicts, known, now)

    def _admit(self, key: Key, seen: View, signal: Signals, decision: Decision, known: _Known, now: float) -> None:
        """Tell the gateways how many sequences a decode replica may hold, where that has moved."""
        number, there = decision.slots, seen.admission
        if not decision.act or number is None or there is None:
            return
        if there.slots is not None:
            remind(self.api, key[0], seen.pods.gateways, there.slots)
        held = max((r.running or 0.0 for r in signal.replicas if r.role == DECODE), default=0.0)
        pause = now - known.admitted_at < slots.PAUSE_SECONDS
        if not pause and slots.moved(there.slots, number, held) and admit(self.api, *key, there.uid, number):
            known.admitted_at = now
            metrics.DECODE_SLOTS.labels(*key).set(number)

    def _fresh(self, key: Key, signal: Signals, found: Readings, known: _Known) -> Verdict:
        ready = [replica for replica in signal.replicas if replica.phase is Phase.READY]
        targets = found.value("targets", *key)
        known.unmatched = known.unmatched + 1 if ready and found.reached and not targets else 0
        known_load = sum(r.running is not None for r in ready)
        sampled = sum(found.value("age", *key, r.name) is not None or r.running is not None for r in ready)
        limit, age = fresh_seconds(signal.scrape_interval), signal.sample_age
        if sampled == 0 and age is not None and age > limit:
            age = None  # remembered from before every scrape failed
        metrics.show_age(*key, signal.sample_age)
        return metrics_fresh(
            Scraped(
                fault=found.faults.get("running") if found.reached else "; ".join(found.faults.values()),
                targets=int(targets) if targets else None,
                ready=len(ready),
                sampled=sampled,
                gauged=known_load,
                age=age,
                interval=signal.scrape_interval,
                limit=limit,
                unmatched=known.unmatched,
            )
        )

    def _report(
        self,
        key: Key,
        seen: View,
        signal: Signals,
        decision: Decision | None,
        verdicts: list[Verdict],
        known: _Known,
        now: float,
    ) -> None:
        """Write the autoscaler's part of the status, if it says something new, and the events."""
        moment = datetime.fromtimestamp(now, UTC)
        before = known.written if known.written is not None else AUTOSCALER.part(seen.body["status"])
        conditions = previous_conditions({"status": before})
        generation = int(seen.body["metadata"].get("generation") or 0)
        status: dict[str, Any] = {}
        notes: tuple[Note, ...] = ()
        if decision is not None:
            told = scaling.told(decision, signal, before, moment)
            status |= told.fields
            notes = told.notes
        if figures := goals.objectives(known.attained):
            status["objectives"] = figures
        status["conditions"] = [
            condition(verdict, conditions.get(verdict.type), generation, moment).manifest() for verdict in verdicts
        ]
        metrics.show_conditions(*key, status["conditions"], own=SCALED_CONDITIONS)
        body = {**seen.body, "status": before}
        if write_status(self.api, body, status, AUTOSCALER):
            metrics.STATUS_WRITES.inc()
        known.written = status
        for note in (*notes, *scaling_transitions(conditions, verdicts)):
            tell(self.api, seen.body, note.reason, note.message, self.reporter, note.warning, moment)


@contextmanager
def _guarded(key: Key) -> Iterator[None]:
    """Tell what goes wrong with one service, and go on with the others."""
    try:
        yield
    except NotLeading:
        raise  # the whole tick ends
    except ApiError as failure:
        log.warning("autoscaler: %s; decided anew at the next tick", failure, extra={"service": "/".join(key)})
    except Exception:
        log.exception("autoscaler failed for one service", extra={"service": "/".join(key)})


def _counted(ask: Ask) -> Ask:
    """The same, counted by how queries end."""

    def asked(query: Query) -> Vector:
        try:
            answer = ask(query)
        except Unanswered:
            metrics.QUERIES.labels("failed").inc()
            raise
        metrics.QUERIES.labels("answered").inc()
        return answer

    return asked


def _remembered(seen: View) -> _Known:
    """Begin with what status kept of an earlier operator's measuring."""
    learnt = (seen.body["status"].get("decision") or {}).get("learnt") or {}
    return _Known(Memory(learnt=stored.read(learnt)))
