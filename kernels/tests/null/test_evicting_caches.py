import pydoc_data.topics as topics

import pytest
import torch
from torch import Tensor

from steelyard_kernels.kv.cache import Cache, WholeCache
from steelyard_kernels.kv.heavy import HeavyCache
from steelyard_kernels.kv.snap import SnapCache, choose_prompt_tokens
from steelyard_kernels.kv.streaming import StreamingCache
from steelyard_kernels.model import gguf
from steelyard_kernels.model.llama import Llama, greedy

HEADS, QUERY_HEADS, WIDTH = 2, 6, 8


def step(cache: Cache, tokens: int, probabilities: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """One step with keys that hold their own position, so that a test can read which tokens stayed."""
    positions = torch.arange(cache.seen, cache.seen + tokens, dtype=torch.float32)
    new = positions[None, :, None].expand(HEADS, tokens, WIDTH)
    keys, values = cache.extend(new, new + 0.5)
    if probabilities is None:
        probabilities = torch.rand(QUERY_HEADS, tokens, keys.shape[1]).softmax(-1)
    cache.settle(probabilities)
    return keys, values


def kept(cache: WholeCache | StreamingCache | HeavyCache | SnapCache) -> list[list[int]]:
    return cache.keys[:, :, 0].int().tolist()


@pytest.mark.parametrize(("prompt", "steps"), [(3, 2), (9, 0), (20, 1), (20, 15)])
def test_streaming_keeps_sinks_and_window(prompt: int, steps: int) -> None:
    cache = StreamingCache(sinks=2, recent=5)
    step(cache, prompt)
    for _ in range(steps):
        step(cache, 1)
    total = prompt + steps
    expected = list(range(total)) if total <= 7 else [0, 1, *range(total - 5, total)]
    assert kept(cache) == [expected] * HEADS


def test_streaming_shows_a_query_the_token_that_is_about_to_go() -> None:
    cache = StreamingCache(sinks=1, recent=2)
    step(cache, 3)
    keys, values = step(cache, 1)
    assert keys[0, :, 0].tolist() == [0, 1, 2, 3]
    assert torch.equal(values, keys + 0.5)


def test_heavy_keeps_what_was_attended_to_over_all_steps() -> None:
    cache = HeavyCache(heavy=2, recent=2)
    prompt = torch.full((QUERY_HEADS, 6, 6), 0.01)
    prompt[:3, :, 1] = 1.0  # the first key head's queries look at token 1
    prompt[3:, :, 3] = 1.0
    prompt[:, :, 0] = 0.5  # token 0 comes second for both
    step(cache, 6, prompt)
    assert kept(cache) == [[0, 1, 4, 5], [0, 3, 4, 5]]
    look = torch.zeros(QUERY_HEADS, 1, 5)
    look[:, :, 2] = 100.0  # now token 4 becomes the heaviest, and token 0 must go
    step(cache, 1, look)
    step(cache, 1, torch.zeros(QUERY_HEADS, 1, 5))
    assert kept(cache) == [[1, 4, 6, 7], [3, 4, 6, 7]]


def test_heavy_scores_are_the_sums_of_probabilities() -> None:
    cache = HeavyCache(heavy=10, recent=10)
    first, second = torch.rand(QUERY_HEADS, 4, 4), torch.rand(QUERY_HEADS, 1, 5)
    step(cache, 4, first)
    step(cache, 1, second)
    expected = second.sum(1)
    expected[:, :4] += first.sum(1)
    torch.testing.assert_close(cache.scores, expected.view(HEADS, 3, 5).sum(1))


def test_snap_keeps_the_window_and_what_it_looks_at_with_neighbours() -> None:
    cache = SnapCache(capacity=5, window=2, kernel=3)
    look = torch.zeros(QUERY_HEADS, 12, 12)
    look[:, -2:, 6] = 1.0
    step(cache, 12, look)
    assert kept(cache) == [[5, 6, 7, 10, 11]] * HEADS
    step(cache, 1)
    assert kept(cache) == [[5, 6, 7, 10, 11, 12]] * HEADS


def test_snap_averages_a_group_or_chooses_for_every_query_head() -> None:
    look = torch.zeros(QUERY_HEADS, 20, 20)
    for head in range(QUERY_HEADS):
        look[head, -2:, 3 * head] = 1.0 + head
    grouped, separate = SnapCache(3, 2, 1), SnapCache(3, 2, 1, per_query_head=True)
    for cache in (grouped, separate):
        step(cache, 20, look)
    assert kept(grouped) == [[6, 18, 19], [15, 18, 19]]  # the loudest query head of each group
    assert kept(separate) == [[3 * head, 18, 19] for head in range(QUERY_HEADS)]
    assert separate.bytes() == grouped.bytes() * QUERY_HEADS // HEADS
    step(separate, 1)  # later tokens are stored once a query head too
    assert len(kept(separate)) == QUERY_HEADS


def test_snap_chooses_as_many_as_asked() -> None:
    chosen = choose_prompt_tokens(torch.rand(QUERY_HEADS, 50, 50), HEADS, capacity=17, window=4, kernel=5)
    assert chosen.shape == (HEADS, 17)
    assert (chosen.diff(dim=1) > 0).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StreamingCache(recent=0), "recent 0"),
        (lambda: HeavyCache(heavy=-1, recent=4), "heavy is -1"),
        (lambda: SnapCache(capacity=64, window=64), "capacity 64"),
        (lambda: SnapCache(kernel=4), "kernel is 4"),
    ],
)
def test_a_refusal_names_the_value(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "make",
    [lambda: StreamingCache(4, 60), lambda: HeavyCache(32, 32), lambda: SnapCache(64, 32)],
    ids=["stream", "h2o", "snap"],
)
def test_a_policy_with_room_for_all_changes_nothing(checkpoint: gguf.Checkpoint, model: Llama, make) -> None:
    tokens = checkpoint.tokenizer.encode("The capital of France is Paris. The capital of Italy is").ids
    expected = greedy(model, tokens, 8)
    assert greedy(model, tokens, 8, [make() for _ in range(model.shape.layers)]) == expected


def test_sinks_are_what_keeps_a_stream_fluent(checkpoint: gguf.Checkpoint, model: Llama) -> None:
    """StreamingLLM's own claim, on a real model: without the first tokens the loss beyond the window explodes."""
    tokens = torch.tensor(checkpoint.tokenizer.encode(topics.topics["assignment"]).ids[:137])

    def loss(sinks: int, recent: int) -> float:
        caches = [StreamingCache(sinks, recent) for _ in range(model.shape.layers)]
        logits = torch.cat([model.forward(part, caches) for part in tokens[:136].split(8)])
        return torch.nn.functional.cross_entropy(logits[72:], tokens[73:]).item()

    with torch.no_grad():
        assert loss(4, 44) + 0.5 < loss(0, 48)
