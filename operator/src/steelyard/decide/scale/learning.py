"""One tick's lessons: how long passes, steps and starts take, and whether prefill's model is too kind (beta)."""

from collections.abc import Mapping
from dataclasses import replace

from steelyard.api.labels import DECODE, PREFILL
from steelyard.decide.scale import fits
from steelyard.decide.scale.decision import Learnt
from steelyard.decide.scale.signals import Engine, Objectives, Phase, Replica, Signals, StartUp

START_WEIGHT = 0.3  # of the newest start-up in the smoothed one
BETA_LEAST, BETA_MOST = 0.8, 1.6
BETA_UP, BETA_DOWN = 0.05, 0.01  # a tick of 5 s
BETA_SLACK = 0.02  # attainment this far below what a minute must reach raises beta
JUDGED_ENOUGH = 30
TICK_SECONDS = 5.0


def learn(learnt: Learnt, signals: Signals, engines: Mapping[str, Engine], elapsed: float) -> Learnt:
    """Take in what the ready replicas tell of themselves. `elapsed` seconds since the last tick."""
    ready = [r for r in signals.replicas if r.phase is Phase.READY]
    single = len(engines) == 1
    passes = [r.passes for r in ready if r.passes is not None and (single or r.role == PREFILL)]
    decoding = engines.get(DECODE) or next(iter(engines.values()))
    steps = [] if single else [r for r in ready if r.role == DECODE]  # aggregated steps hold prefill work too
    return replace(
        _starts(learnt, ready),
        prefill=fits.learn(
            learnt.prefill, [fits.prefill_point(p.tokens, p.seconds, p.count) for p in passes if p.tokens > 0], elapsed
        ),
        decode=fits.learn(learnt.decode, _steps(steps, decoding), elapsed),
    )


def feedback(
    beta: float, signals: Signals, objectives: Objectives, elapsed: float, *, decode_waits: bool, starting: bool
) -> float:
    """Move beta by attainment of TTFT over the last minute.

    Only with enough judged requests, and a miss is the model's only if nothing else explains it: not while decode makes
    requests wait, nor while replicas that were asked for still start (a late start would be paid for a second time, and for
    minutes, by a beta that falls slowly).
    """
    met, judged = signals.ttft_met, signals.ttft_judged
    if objectives.ttft is None or met is None or judged is None or judged < JUDGED_ENOUGH or decode_waits:
        return beta
    share = min(1.0, elapsed / TICK_SECONDS)
    attained, enough = met / judged, 1 - objectives.allowed_loss
    if attained < enough - BETA_SLACK:
        return beta if starting else min(BETA_MOST, beta + BETA_UP * share)
    return max(BETA_LEAST, beta - BETA_DOWN * share) if attained > enough else beta


def start_seconds(learnt: Learnt, prior: float) -> float:
    """d: seconds from asking for a replica until it is ready; measured where any start was seen."""
    start = learnt.start
    return prior if start is None else start.scheduling + start.loading + start.warming


def _steps(replicas: list[Replica], engine: Engine) -> list[fits.Point]:
    bend = engine.prior.decode[2]
    return [
        fits.decode_point(r.kv_use, r.running, r.step_seconds, bend)
        for r in replicas
        if r.step_seconds is not None and r.kv_use is not None and r.running is not None and r.running >= 1
    ]


def _starts(learnt: Learnt, ready: list[Replica]) -> Learnt:
    fresh = [(r.since, r.start) for r in ready if r.start is not None and r.since > learnt.start_until]
    smooth, samples, until = learnt.start, learnt.start_samples, learnt.start_until
    for since, start in sorted(fresh, key=lambda pair: pair[0]):
        smooth = start if smooth is None else _blend(smooth, start)
        samples, until = samples + 1, since
    return replace(learnt, start=smooth, start_samples=samples, start_until=until)


def _blend(old: StartUp, new: StartUp) -> StartUp:
    def mix(a: float, b: float) -> float:
        return a + START_WEIGHT * (b - a)

    return StartUp(mix(old.scheduling, new.scheduling), mix(old.loading, new.loading), mix(old.warming, new.warming))
