"""The comparison of batching strategies: every request answered once by each, figures by hand, the page."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from bench.batching.figures import TPOT, TTFT, Figures, figures
from bench.batching.load import Asked, requests
from bench.batching.play import Answered, play
from bench.batching.report import as_page, conditions, plot
from steelyard_engine.batching import STRATEGIES
from steelyard_engine.steps import Chunk, Free


class Counting:
    """A backend that computes nothing and counts what it is given."""

    kv_tokens, slots = 8192, 64

    def __init__(self) -> None:
        self.tokens, self.freed, self.widest = 0, 0, 0

    def apply(self, operation: object) -> None:
        self.freed += isinstance(operation, Free)

    def run(self, chunks: Sequence[Chunk], sampling: object, kv_use: float) -> dict[int, list[int]]:
        self.tokens += sum(chunk.end - chunk.start for chunk in chunks)
        self.widest = max(self.widest, len(chunks))
        return {chunk.sequence.id: [7] for chunk in chunks if chunk.sample}


@pytest.mark.parametrize("batching", STRATEGIES)
def test_every_request_is_answered_whole_and_leaves_nothing(batching: str) -> None:
    backend, asked = Counting(), requests(20, 1e6, seed=1)
    found = play(backend, batching, 4, 256, asked)
    assert len(found) == len(asked)
    assert backend.tokens == sum(len(one.prompt) + one.answer - 1 for one in asked), "no token is computed twice"
    assert backend.widest == 4, "as many at once as there are places"
    assert backend.freed == len(asked)
    assert all(one.ttft >= 0 and one.tpot >= 0 for one in found)


def test_rates_share_their_requests() -> None:
    slow, fast = requests(10, 1.0, seed=2), requests(10, 2.0, seed=2)
    assert [(one.prompt, one.answer) for one in slow] == [(one.prompt, one.answer) for one in fast]
    assert [one.at for one in slow] == pytest.approx([2 * one.at for one in fast])


def test_figures_by_hand() -> None:
    asked = [Asked(1.0, (5,), 10), Asked(2.0, (5,), 30)]
    answered = [Answered(TTFT / 2, TPOT / 2, 5.0), Answered(TTFT * 2, TPOT / 2, 9.0)]
    found = figures("static", 1.0, asked, answered)
    assert found.tokens_per_second == 40 / 8
    assert found.attained == 0.5
    assert found.goodput == 1 / 8


def test_the_page_and_the_plot_show_every_strategy() -> None:
    found = [Figures(name, 1.0, 10, 1, 2, 0.1, 0.2, 0.9, 0.8) for name in STRATEGIES]
    page, svg = as_page(found, conditions(40, 8, 256)), plot(found)
    assert all(f"| {name} |" in page for name in STRATEGIES)
    assert svg.startswith("<?xml")
    assert "</svg>" in svg
