"""Which tokens are kept, against kvpress: its scores of a small Llama's own attention, and ours of the same."""

import pytest
import torch
from kvpress import ObservedAttentionPress, SnapKVPress, StreamingLLMPress
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from steelyard_kernels.kv.heavy import HeavyCache
from steelyard_kernels.kv.snap import SnapCache, choose_prompt_tokens
from steelyard_kernels.kv.streaming import StreamingCache

TOKENS, HEADS, KV_HEADS = 60, 6, 2


@pytest.fixture(scope="module")
def seen() -> tuple[torch.nn.Module, Tensor, Tensor, Tensor, Tensor]:
    """An attention module, its input, keys, values [1, KV_HEADS, TOKENS, width] and probabilities [1, HEADS, TOKENS, TOKENS]."""
    torch.manual_seed(11)
    config = LlamaConfig(
        hidden_size=96, intermediate_size=64, num_hidden_layers=2, num_attention_heads=HEADS, vocab_size=100,
        num_key_value_heads=KV_HEADS, attn_implementation="eager",
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    with torch.no_grad():
        out = model(
            torch.randint(0, 100, (1, TOKENS)), output_attentions=True, output_hidden_states=True, use_cache=True
        )
    layer = out.past_key_values.layers[1]
    return model.model.layers[1].self_attn, out.hidden_states[1], layer.keys, layer.values, out.attentions[1]


def kept(scores: Tensor, count: int) -> list[list[int]]:
    """The indices of the best, as kvpress keeps them."""
    return scores[0].topk(count, dim=-1).indices.sort(-1).values.tolist()


@pytest.mark.parametrize(("capacity", "window", "kernel"), [(20, 8, 5), (30, 4, 1), (17, 16, 7)])
def test_snapkv_keeps_what_kvpress_does(seen, capacity: int, window: int, kernel: int) -> None:
    press = SnapKVPress(window_size=window, kernel_size=kernel)
    attention, hidden, keys, values, probabilities = seen
    theirs = kept(press.score(attention, hidden, keys, values, probabilities, {}), capacity)
    assert choose_prompt_tokens(probabilities[0], KV_HEADS, capacity, window, kernel).tolist() == theirs
    cache = SnapCache(capacity, window, kernel)
    cache.extend(keys[0], values[0])
    cache.settle(probabilities[0])
    for head, chosen in enumerate(theirs):
        assert torch.equal(cache.keys[head], keys[0, head, chosen])


@pytest.mark.parametrize(("sinks", "recent"), [(4, 26), (1, 11), (8, 16)])
def test_streaming_keeps_what_kvpress_does(seen, sinks: int, recent: int) -> None:
    attention, hidden, keys, values, probabilities = seen
    press = StreamingLLMPress(compression_ratio=1 - (sinks + recent + 0.5) / TOKENS, n_sink=sinks)  # it rounds down
    scores = press.score(attention, hidden, keys, values, probabilities, {})
    theirs = scores[0, 0].nonzero().flatten()
    cache = StreamingCache(sinks, recent)
    cache.extend(keys[0], values[0])
    cache.settle(probabilities[0])
    assert torch.equal(cache.keys, keys[0][:, theirs])


@pytest.mark.parametrize(("heavy", "recent"), [(10, 10), (20, 5), (1, 30)])
def test_heavy_scores_are_kvpress_observed_attention_before_it_divides_by_the_queries(
    seen, heavy: int, recent: int
) -> None:
    attention, hidden, keys, values, probabilities = seen
    mean = ObservedAttentionPress().score(attention, hidden, keys, values, probabilities, {})
    sums = (
        mean[0] * torch.arange(TOKENS, 0, -1) * (HEADS // KV_HEADS)
    )  # each token was seen by those after it and itself
    cache = HeavyCache(heavy, recent)
    cache.extend(keys[0], values[0])
    cache.settle(probabilities[0])
    for head in range(KV_HEADS):
        best = sums[head, : TOKENS - recent].topk(heavy).indices.sort().values
        chosen = torch.cat([best, torch.arange(TOKENS - recent, TOKENS)])
        assert torch.equal(cache.keys[head], keys[0, head, chosen])
        torch.testing.assert_close(cache.scores[head], sums[head, chosen], atol=1e-5, rtol=1e-4)
