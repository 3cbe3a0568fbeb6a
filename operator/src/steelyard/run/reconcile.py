"""One reconcile of one service: observe → decide → build → apply → report, in that order and once.

Whatever happens in the middle, the status is written at most once and only if it says something new; events follow.
Three kinds of failure (decide/outcome.py): refused waits for the user, waiting comes back soon, anything else is raised
to the queue, which backs off, after the status told about it.
"""

from dataclasses import dataclass, field
from datetime import datetime

from steelyard.api import names
from steelyard.api.reasons import EventReason, Reason
from steelyard.apply.children import Changes, Claim, Owner, bring, claim, key_of, rehearse, renew
from steelyard.apply.report import ALONE, RECONCILE, release, tell, write_status
from steelyard.apply.revisions import keep_latest, store
from steelyard.apply.scale import scale
from steelyard.build import quantize, render
from steelyard.build.pacing import paced
from steelyard.decide import plan as planning
from steelyard.decide import rollout_pause
from steelyard.decide import status as reporting
from steelyard.decide.conditions import Failure
from steelyard.decide.outcome import Rejected, Waiting
from steelyard.decide.replicas import GATEWAY_POOL, Scale
from steelyard.decide.rollout import rollout
from steelyard.decide.site import Site
from steelyard.observe.client import Api, Body, Denied, Malformed, NotLeading, Unreachable
from steelyard.observe.resources import CONTROLLER_REVISION, JOB, LEADER_WORKER_SET
from steelyard.observe.snapshot import Observation, Settled, observe, settled
from steelyard.run import metrics
from steelyard.run.fleet import Fleet, view
from steelyard.run.rest import Left, Rest
from steelyard.run.starts import Starts

FAULTS_UNTIL_TOLD = 3  # an error of ours is shown in status once it happened this often in a row
NAMESPACE_GOING_SECONDS = 10.0
QUANTIZING_SECONDS = 5.0  # between looks at a Job that quantizes weights: its log tells nobody
ROLLING_SECONDS = 5.0  # between looks at a rollout that may have to wait
SCHEDULE_SECONDS = 30.0  # between looks at a service with known peaks, where no autoscaler ticks
LISTED = 6  # children named one by one in an event


@dataclass(frozen=True)
class Result:
    """How a reconcile ended; `again_after` in seconds, None where the service is gone."""

    again_after: float | None
    generation: int | None = None
    outcome: str = "done"  # done | waiting | refused | gone


@dataclass
class Done:
    """What was carried out."""

    changes: Changes = field(default_factory=Changes)
    scaled: list[Scale] = field(default_factory=list)


@dataclass(frozen=True)
class Reconciler:
    """Everything a reconcile needs besides the key; `reporter` names this replica in events, `rest` what need not be read.

    With a `fleet` an autoscaler runs, which gets to know of every look, and which writes the numbers of replicas.
    """

    api: Api
    site: Site
    reporter: str
    resync_seconds: float
    fleet: Fleet | None = None
    rest: Rest = field(default_factory=lambda: Rest(full_seconds=0))  # by default every look is at everything
    starts: Starts = field(default_factory=Starts)

    def __call__(self, namespace: str, name: str, faults: int, now: datetime) -> Result:
        """Reconcile one service; `faults` is how many runs before this one failed in a row."""
        looked = self._look(namespace, name, now)
        if looked is None:
            metrics.forget_service(namespace, name)
            self.rest.forget((namespace, name))
            self.starts.forget((namespace, name))
            if self.fleet is not None:
                self.fleet.forget((namespace, name))
            return Result(None, outcome="gone")
        seen, plan = looked
        self.starts.observe((namespace, name), seen)
        if self.fleet is not None:
            self.fleet.put((namespace, name), view(seen, plan, self.fleet.find((namespace, name))))
            self.fleet.watch((namespace, name), plan.rollout is not None and rollout_pause.waits(plan.service))
        done = Done()
        failure: Failure | None = None
        fault: Exception | None = None
        again, outcome = self.resync_seconds, "refused" if plan.refusals else "done"
        if plan.rollout is not None and rollout_pause.waits(plan.service):
            again = ROLLING_SECONDS
        elif plan.quantizing is not None and plan.quantizing.failed is None:
            again = QUANTIZING_SECONDS
        elif plan.service is not None and plan.service.spec.autoscaling.schedule and self.fleet is None:
            again = min(again, SCHEDULE_SECONDS)
        try:
            if not plan.paused:
                self._carry_out(seen, plan, done)
        except Rejected as refusal:
            failure, outcome = Failure(refusal.reason, refusal.message, refused=True), "refused"
        except Malformed as refusal:
            failure, outcome = Failure(Reason.INVALID_SPEC, str(refusal), refused=True), "refused"
        except Waiting as waiting:
            failure, outcome = Failure(waiting.reason, waiting.message, refused=False), "waiting"
            again = waiting.after_seconds
        except (Unreachable, NotLeading):
            raise  # the status could not be written either
        except Denied as denied:
            if "being terminated" in str(denied):  # the namespace goes, and the service with it (B32)
                return Result(NAMESPACE_GOING_SECONDS, outcome="waiting")
            fault = denied
            failure = Failure(Reason.INTERNAL_ERROR, f"the operator's rights do not suffice: {denied}", refused=False)
        except Exception as error:
            fault = error
            if faults + 1 >= FAULTS_UNTIL_TOLD:
                failure = Failure(Reason.INTERNAL_ERROR, f"{type(error).__name__}: {error}", refused=False)
        self._report(seen, plan, failure, done, now, silent=fault is not None and failure is None)
        if fault is not None:
            raise fault
        quiet = failure is None and not done.changes and plan.rollout is None and plan.quantizing is None
        if plan.keep is not None and not plan.paused and quiet:
            self.rest.settled((namespace, name), settled(seen, plan.keep))
        return Result(again, int(seen.snapshot.service["metadata"].get("generation") or 0), outcome)

    def _look(self, namespace: str, name: str, now: datetime) -> tuple[Observation, planning.Plan] | None:
        """See the service and plan. What is at rest is left out, unless it turns out that there is more to do."""
        left = self.rest.begin((namespace, name))
        looked = self._see(namespace, name, left, now)
        if looked is not None and looked[0].left_out and not _as_settled(*looked, left.settled):
            looked = self._see(namespace, name, Left(), now)
        return looked

    def _see(self, namespace: str, name: str, left: Left, now: datetime) -> tuple[Observation, planning.Plan] | None:
        seen = observe(self.api, namespace, name, left.kinds, left.settled, self.starts.known((namespace, name)))
        if seen is None:
            return None
        judged = self.fleet.judged((namespace, name)) if self.fleet is not None else None
        moment = planning.Moment(now.timestamp(), judged)
        images, nodes, quantizer = self.site.engine_images, self.site.node_cache, self.site.quantize_image
        return seen, planning.plan(seen.snapshot, self.fleet is not None, images, moment, nodes, quantizer)

    def _carry_out(self, seen: Observation, plan: planning.Plan, done: Done) -> None:
        snapshot = seen.snapshot
        meta = snapshot.service["metadata"]
        owner = Owner(meta["name"], meta["namespace"], meta["uid"])
        renew(self.api, owner, self._jobs(plan, stuck=True), seen.children, done.changes)
        if plan.quantizing is not None and plan.keep is None:
            jobs = {key: body for key, body in seen.children.items() if key[0] == JOB.kind}
            bring(self.api, owner, claim(self.api, owner, self._jobs(plan), seen.children), jobs, done.changes)
            return
        if not plan.render and plan.keep is None:
            return
        grouped = {name for kind, name in seen.children if kind == LEADER_WORKER_SET.kind}
        if plan.render or CONTROLLER_REVISION.kind not in seen.left_out:  # else all is as it was when it was in place
            claims = self._claims(seen, plan, owner)
            wanted = (key_of(each.manifest) for each in claims)
            grouped = {name for kind, name in wanted if kind == LEADER_WORKER_SET.kind}
            bring(self.api, owner, claims, _prunable(seen, plan), done.changes)
            keep_latest(self.api, meta["namespace"], seen.revisions)
        for step in plan.scales:
            target = names.engines(owner.name, step.pool) if step.pool != GATEWAY_POOL else names.gateway(owner.name)
            scale(self.api, owner.namespace, target, step.replicas, target in grouped)
            done.scaled.append(step)

    def _jobs(self, plan: planning.Plan, stuck: bool = False) -> list[Body]:
        """The Jobs that the spec's children wait for; only those that cannot start where they are to be `stuck`."""
        if plan.service is None or plan.quantizing is None:
            return []
        steps = (step for step in plan.quantizing.steps if step.trouble is not None or not stuck)
        return [quantize.job(plan.service, step.order, self.site) for step in steps]

    def _claims(self, seen: Observation, plan: planning.Plan, owner: Owner) -> list[Claim]:
        """Find the children that are wanted: rendered and stored now, or those in force."""
        snapshot = seen.snapshot
        if plan.render and plan.service is not None:
            rendered = render.children(plan.service, snapshot.accelerators, self.site)
            number = (snapshot.current.number if snapshot.current else 0) + 1
            begun = rollout(
                snapshot, rendered, begins=True
            )  # no pod of it is there yet, unless it brings back an earlier spec
            claims = claim(self.api, owner, (paced(body, begun, paused=False) for body in rendered), seen.children)
            rehearse(self.api, claims)
            store(self.api, render.revision(plan.service, rendered, plan.spec_hash, number))
            return claims
        stored = plan.keep.children if plan.keep is not None else ()
        held = plan.progress is not None and plan.progress.paused is not None
        wanted = [paced(dict(child), plan.rollout, held) for child in stored if child["kind"] not in seen.left_out]
        kept = {child["metadata"]["name"] for child in wanted if child["kind"] == JOB.kind}
        wanted += [body for body in self._jobs(plan) if body["metadata"]["name"] not in kept]
        return claim(self.api, owner, wanted, seen.children)

    def _report(
        self,
        seen: Observation,
        plan: planning.Plan,
        failure: Failure | None,
        done: Done,
        now: datetime,
        silent: bool,
    ) -> None:
        service = dict(seen.snapshot.service)
        meta = service["metadata"]
        status = reporting.status(seen.snapshot, plan, failure, now)
        told = []
        if not silent:
            if self.fleet is None:
                release(self.api, service)
            author = ALONE if self.fleet is None else RECONCILE
            if write_status(self.api, service, status, author):
                metrics.STATUS_WRITES.inc()
                told = list(reporting.transitions(reporting.previous_conditions(service), status))
                told += reporting.quantized(service, status, seen.snapshot.jobs)
            metrics.show_status(meta["namespace"], meta["name"], author.part(status))
        for note in [*_notes(done, stepping=not plan.render), *told]:
            tell(self.api, service, note.reason, note.message, self.reporter, note.warning, now)


def _prunable(seen: Observation, plan: planning.Plan) -> dict[tuple[str, str], Body]:
    """The live children that go where they are not wanted. While a spec is refused nobody knows which Jobs it wants: one that
    computes is worth more than the room that it takes."""
    return {key: body for key, body in seen.children.items() if key[0] != JOB.kind or not plan.refusals}


def _as_settled(seen: Observation, plan: planning.Plan, before: Settled | None) -> bool:
    """Whether a look that left something out found the children in force and the Deployments as they were in place."""
    if before is None or plan.keep is None or plan.quantizing is not None or plan.keep.name != before.revision.name:
        return False
    return CONTROLLER_REVISION.kind not in seen.left_out or seen.deployments_hash == before.deployments


def _notes(done: Done, stepping: bool) -> list[reporting.Note]:
    """Tell what was written, and count it. The steps of a rollout are left to its condition: they are many."""
    changes = done.changes
    for change in ("created", "updated", "repaired", "pruned"):
        metrics.CHILD_WRITES.labels(change).inc(len(getattr(changes, change)))
    metrics.CHILD_WRITES.labels("scaled").inc(len(done.scaled))
    notes = []
    words = ("created", "pruned") if stepping else ("created", "updated", "pruned")
    told = [f"{word} {_listed(found)}" for word in words if (found := getattr(changes, word))]
    if told:
        notes.append(reporting.Note(EventReason.CHILDREN_CHANGED, "; ".join(told)))
    if changes.repaired:
        message = "put back what was changed by hand: " + ", ".join(changes.repaired)
        notes.append(reporting.Note(EventReason.DRIFT_REPAIRED, message, warning=True))
    for step in done.scaled:
        if step.before == step.replicas:
            continue
        pool = step.pool or "gateway"
        notes.append(reporting.Note(EventReason.SCALED, f"{pool} {step.before}→{step.replicas}"))
    return notes


def _listed(places: list[str]) -> str:
    return ", ".join(places) if len(places) <= LISTED else f"{len(places)} children"
