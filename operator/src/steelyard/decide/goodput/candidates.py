"""Which replicas are worth looking at: formats with a kernel, and layouts that divide, fit and keep hardware busy."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import ceil

from steelyard.catalog.shapes import Kind
from steelyard.decide.abilities import LOADABLE
from steelyard.decide.feasibility.findings import Finding
from steelyard.decide.feasibility.fit import deepened, fits
from steelyard.decide.feasibility.inputs import Side
from steelyard.decide.feasibility.memory import Memory, memory
from steelyard.decide.feasibility.numbers import numbers
from steelyard.decide.feasibility.reach import replica
from steelyard.decide.feasibility.spread import spreads, ways
from steelyard.decide.goodput.pools import Engine
from steelyard.decide.goodput.workload import Workload
from steelyard.decide.model.fitted import profiled
from steelyard.decide.model.latency import Polynomial
from steelyard.decide.model.layout import Layout
from steelyard.decide.model.roofline import Factors, Roofline
from steelyard.decide.model.speculation import guessed

WIDTHS = (1, 2, 4, 8, 16)  # of tensor parallelism
COPIES = (4, 8, 16, 32, 64)  # of attention, where experts are spread
USEFUL_SEQUENCES = 2  # a replica that holds fewer of the mean context does not batch


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica that could run: its side, its memory, its roofline, and the engine that pools are made of."""

    side: Side
    memory: Memory
    roofline: Roofline
    engine: Engine
    profile: Polynomial
    notes: tuple[Finding, ...] = ()

    @property
    def accelerators(self) -> int:
        """Accelerators of one replica."""
        return self.side.layout.accelerators

    @property
    def price(self) -> float | None:
        """Price of one replica for an hour; None: unknown."""
        each = self.side.hardware.price_per_hour
        return None if each is None else each * self.accelerators

    @property
    def words(self) -> str:
        """How it is spread: TP2, TP1 DP8 EP."""
        return self.side.layout.words


def formats_of(side: Side, wanted: Iterable[str] | None) -> Iterator[Side]:
    """Give the side in each format of weights that is wanted: those named, else the checkpoint's own, and for a 16-bit
    checkpoint also what the engine makes while it loads, where a kernel is known to be good."""
    if wanted is not None:
        for name in wanted:
            loaded = name in LOADABLE.get(side.engine, ())
            yield replace(side, weights=name, stored=None, source="Load" if loaded else "Checkpoint")
        return
    yield side
    if side.format != "none":
        return
    for name in LOADABLE.get(side.engine, ()):
        other = replace(side, weights=name, stored=None, source="Load")
        kernel = other.kernel
        # int8 is as small and as fast as fp8 and loses more, so it is looked at only where fp8 has no kernel
        worse = name == "int8" and replace(other, weights="fp8").products == "fp8"
        if kernel is not None and kernel.verdict == "good" and not worse:
            yield other


def layouts_of(side: Side) -> Iterator[Layout]:
    """Give the layouts: inside the fast links and whole nodes; several nodes only where one does not hold the model."""
    links, node = side.hardware.interconnect, side.hardware.per_node
    reach = max(node, links.domain if links else 1)
    divide = [n for n in ways(side.shape, min(reach, WIDTHS[-1])) if n in WIDTHS and (n <= node or n % node == 0)]
    moe = side.shape.experts is not None
    found = False
    for tensor in divide:
        layout = Layout(tensor=tensor, expert=moe and tensor > 1)
        found |= _holds(replace(side, layout=layout))
        yield layout
    if moe and side.shape.has(Kind.LATENT, Kind.FULL):
        for copies in COPIES:
            if copies <= reach and (copies <= node or copies % node == 0):
                found |= _holds(replace(side, layout=Layout(data=copies, expert=True)))
                yield Layout(data=copies, expert=True)
    if not found and (deeper := deepened(replace(side, layout=Layout(expert=moe)))) is not None:
        yield deeper.layout


def _holds(side: Side) -> bool:
    counted = memory(side)
    return counted is not None and counted.left >= counted.sequence(side.context)


def replicas_of(side: Side, load: Workload, factors: Factors | None = None) -> list[Replica]:
    """Give every layout of a side that nothing refuses and that holds more than one sequence of the load."""
    made = []
    for layout in layouts_of(side):
        found = replica_of(replace(side, layout=layout), load, factors)
        if found is not None and found.engine.kv_tokens >= USEFUL_SEQUENCES * load.context:
            made.append(found)
    return made


def replica_of(side: Side, load: Workload, factors: Factors | None = None) -> Replica | None:
    """Make one replica; None where something refuses it or figures are missing."""
    findings = [*spreads(side), *numbers(side)]
    if any(finding.refused for finding in findings):
        return None
    findings += fits(side)
    counted, roofline = memory(side), replica(side)
    if any(f.refused for f in findings) or counted is None or roofline is None:
        return None
    if counted.left < counted.sequence(side.context):
        return None  # an engine that computes nothing would start; the real one would not
    if factors is not None:
        roofline = replace(roofline, factors=factors)
    kv_tokens = counted.tokens(max(load.context, 1.0))
    most = max(1, min(side.sequences, ceil(kv_tokens / max(load.context, 1.0))))
    model = profiled(roofline, max(kv_tokens, 1), pass_tokens=side.batch_tokens, sequences=most, context=load.context)
    if side.guessing is not None:
        model = guessed(model, side.guessing)
    engine = Engine(model, kv_tokens, side.sequences, side.layout.data * side.layout.pipeline)
    return Replica(side, counted, roofline, engine, model, tuple(f for f in findings if not f.refused))
