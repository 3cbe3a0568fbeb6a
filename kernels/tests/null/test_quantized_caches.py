import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from steelyard_kernels.kv import affine
from steelyard_kernels.kv.cache import Cache, WholeCache
from steelyard_kernels.kv.kivi import KiviCache
from steelyard_kernels.kv.progressive import ProgressiveCache, allocate, halve, halve_codes, sensitivity
from steelyard_kernels.kv.scaled import ScaledCache, quantize_tokens
from steelyard_kernels.model import gguf
from steelyard_kernels.model.llama import Llama

HEADS, WIDTH = 2, 32


def feed(cache: Cache, steps: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Steps of so many tokens; returns the keys and values given, and those a last token would see."""
    given: list[Tensor] = []
    for tokens in [*steps, 1]:
        new = torch.randn(2, HEADS, tokens, WIDTH)
        given.append(new)
        keys, values = cache.extend(new[0], new[1])
        assert torch.equal(keys[:, -tokens:], new[0]), "a step sees its own tokens as they are"
        cache.settle(torch.empty(0))
    everything = torch.cat(given, 2)
    return everything[0], everything[1], keys, values


@settings(max_examples=50)
@given(
    bits=st.sampled_from([2, 4, 8]),
    group=st.sampled_from([8, 32]),
    offset=st.sampled_from([0.0, 5.0, -300.0]),
    seed=st.integers(0, 2**31),
)
def test_no_value_of_an_asymmetric_group_moves_further_than_half_a_step(
    bits: int, group: int, offset: float, seed: int
) -> None:
    values = torch.randn(3, 64, generator=torch.Generator().manual_seed(seed)) + offset
    packed = affine.quantize(values, bits, group)
    # Scale and low are fp16: half a step, the rounding of low, and what a rounded-down scale leaves out at the top.
    levels = 2**bits - 1
    step = packed.scale.float().repeat_interleave(group, 1)
    allowed = step * (0.5 + levels * 2**-11) + packed.low.float().abs().repeat_interleave(group, 1) * 2**-10
    assert ((packed.dequantize() - values).abs() <= allowed + 1e-6).all()


def test_a_constant_group_is_kept_exactly() -> None:
    values = torch.full((2, 32), 1.5)
    assert torch.equal(affine.quantize(values, 2, 16).dequantize(), values)


@pytest.mark.parametrize(
    ("steps", "kept_keys", "kept_values"), [([5], 6, 6), ([8], 1, 8), ([21], 6, 8), ([16] + [1] * 7, 0, 8)]
)
def test_kivi_packs_keys_by_residuals_and_values_one_by_one(steps: list[int], kept_keys: int, kept_values: int) -> None:
    cache = KiviCache(bits=4, group=4, residual=8)
    # Values pack along channels, keys along tokens: 8 codes of 4 bits fill a word.
    keys, values, seen_keys, seen_values = feed(cache, steps)
    total = sum(steps) + 1
    assert cache.recent_keys.shape[1] == kept_keys
    assert cache.recent_values.shape[1] == kept_values
    assert seen_keys.shape == seen_values.shape == (HEADS, total, WIDTH)
    assert (seen_keys - keys).abs().max() < 0.25
    assert (seen_values - values).abs().max() < 0.25


def test_kivi_groups_keys_by_channel_and_values_by_token() -> None:
    """One huge channel must not cost the other channels of the keys anything, nor one huge token the other tokens' values."""
    cache = KiviCache(bits=2, group=16, residual=16)
    keys = torch.rand(1, 16, WIDTH)
    keys[:, :, 3] *= 1000
    values = torch.rand(1, 32, WIDTH)
    values[:, 5] *= 1000
    cache.extend(torch.cat([keys, keys], 1), values)
    cache.settle(torch.empty(0))
    assert cache.packed_keys is not None
    assert cache.packed_values is not None
    key_error = (cache.packed_keys.dequantize().transpose(1, 2)[:, :16] - keys).abs().amax((0, 1))
    assert key_error[torch.arange(WIDTH) != 3].max() < 0.2
    value_error = (cache.packed_values.dequantize() - values[:, :16]).abs().amax((0, 2))
    assert value_error[torch.arange(16) != 5].max() < 0.2


def test_kivi_words_hold_sixteen_two_bit_codes_little_endian() -> None:
    tokens = torch.arange(16).float() % 4  # codes 0 1 2 3 0 1 …, scale 1
    cache = KiviCache(bits=2, group=16, residual=16)
    cache.extend(tokens.view(1, 16, 1).expand(1, 16, 16), tokens.view(1, 1, 16).expand(1, 16, 16))
    cache.settle(torch.empty(0))
    assert cache.packed_keys is not None
    assert cache.packed_keys.words.shape == (1, 16, 1)
    assert (cache.packed_keys.words.long() & 0xFFFFFFFF).unique().tolist() == [int("11100100" * 4, 2)]


@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_eight_bits_are_near(kind) -> None:
    values = torch.randn(4, 7, WIDTH) * torch.logspace(-3, 3, 7)[:, None]
    scaled = quantize_tokens(values, kind)
    error = (scaled.dequantize() - values).abs()
    # int8: half a step of max/127. fp8: half a unit in the last of 3 bits of mantissa, or of the smallest subnormal.
    allowed = scaled.scale * 0.5 if kind == "int8" else values.abs() * 2**-4 + scaled.scale * 2**-10
    assert (error <= allowed * 1.001).all()


def test_a_fixed_scale_saturates_instead_of_overflowing() -> None:
    scaled = quantize_tokens(torch.tensor([[1e6, -1e6, 1.0, 465.0]]), "fp8", fixed_scale=1.0)
    assert scaled.dequantize().tolist() == [[448.0, -448.0, 1.0, 448.0]]


def test_an_eight_bit_cache_is_half_of_sixteen_bits_and_its_scales() -> None:
    cache, whole = ScaledCache("int8"), WholeCache()
    for each in (cache, whole):
        new = torch.randn(HEADS, 10, WIDTH, dtype=torch.bfloat16)
        each.extend(new, new)
        each.settle(torch.empty(0))
    assert cache.bytes() == whole.bytes() // 2 + 2 * HEADS * 10 * 4


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_the_shift_is_the_rounded_division_for_every_code(bits: int) -> None:
    codes = torch.arange(2**bits)
    divisor = 2 ** (bits // 2) + 1
    halved = halve_codes(codes, bits).long()
    assert (halved - (codes / divisor).round().long()).abs().max() == 0
    assert halved.max() == 2 ** (bits // 2) - 1


def test_halving_is_quantizing_again_within_one_code() -> None:
    values = torch.randn(5, 64)
    once = affine.quantize(values, 16, 32, scales=torch.float32)
    twice = halve(halve(once))
    direct = affine.quantize(values, 4, 32, scales=torch.float32)
    assert twice.bits == 4
    assert ((twice.dequantize() - direct.dequantize()).abs() <= direct.scale.repeat_interleave(32, 1) * 1.001).all()


@settings(max_examples=30)
@given(layers=st.integers(1, 5), room=st.floats(1.0, 3.0), seed=st.integers(0, 2**31))
def test_no_allocation_is_better_than_the_programmes(layers: int, room: float, seed: int) -> None:
    cost = torch.rand(layers, 3, generator=torch.Generator().manual_seed(seed)).sort(1, descending=True).values.tolist()
    sizes = [1.0, 2.0, 4.0]
    budget = layers * room
    chosen = allocate(cost, sizes, budget)
    assert sum(sizes[choice] for choice in chosen) <= budget + 1e-6
    best = min(
        sum(cost[layer][choice] for layer, choice in enumerate(choices))
        for choices in itertools.product(range(3), repeat=layers)
        if sum(sizes[choice] for choice in choices) <= budget + 1e-6
    )
    assert sum(cost[layer][choice] for layer, choice in enumerate(chosen)) == pytest.approx(best, abs=1e-6)


def test_a_budget_that_nothing_fits_is_refused() -> None:
    with pytest.raises(ValueError, match="budget is 3 but 2 layers need at least 4"):
        allocate([[1.0], [1.0]], [2.0], 3)


def test_fewer_bits_are_more_sensitive_and_a_flat_loss_not_at_all() -> None:
    values = torch.randn(8, 64)
    found = [sensitivity(values, torch.ones(8, 64), bits, 32) for bits in (8, 4, 2)]
    assert found == sorted(found)
    assert sensitivity(values, torch.zeros(8, 64), 2, 32) == 0


def test_a_progressive_cache_loses_bits_only_when_it_must_and_no_more_than_allowed() -> None:
    budget = 20 * HEADS * 2 * (WIDTH * 2 + 8)  # 20 tokens of 16-bit keys and values with their scales
    cache = ProgressiveCache(budget, least_bits=4, group=WIDTH, sinks=1, window=4)
    bits = []
    for _ in range(120):
        new = torch.randn(2, HEADS, 1, WIDTH)
        cache.extend(new[0], new[1])
        cache.settle(torch.empty(0))
        bits.append(cache.bits)
    assert bits[24] == 16, "20 packed tokens, a window of 4 and a sink fit"
    assert bits[25] == 8
    assert bits == sorted(bits, reverse=True)
    assert bits[-1] == 4


def test_a_progressive_cache_stays_near_what_it_was_given() -> None:
    keys, values, seen_keys, seen_values = feed(
        ProgressiveCache(1, least_bits=8, group=WIDTH, sinks=2, window=3), [9, 4, 1, 1]
    )
    assert torch.equal(seen_keys[:, :2], keys[:, :2])
    assert (seen_keys - keys).abs().max() < 0.02
    assert (seen_values - values).abs().max() < 0.02


@pytest.mark.parametrize(
    ("make", "worse", "share"),
    [
        (lambda: ScaledCache("int8"), 0.01, 0.30),
        (lambda: ScaledCache("fp8"), 0.03, 0.30),
        (lambda: KiviCache(4, 32, 32), 0.05, 0.40),
        (lambda: ProgressiveCache(1, least_bits=4, window=32), 0.1, 0.40),
    ],
    ids=["int8", "fp8", "kivi-4", "pm-kvq-4"],
)
def test_a_real_model_hardly_notices(
    checkpoint: gguf.Checkpoint, model: Llama, make, worse: float, share: float
) -> None:
    """Mean loss over tokens that see a compressed past; `share` is of the bytes of an fp32 cache."""
    text = (
        "The quick brown fox jumps over the lazy dog. " * 3
        + "Water boils at one hundred degrees, and freezes at zero. " * 8
    )
    tokens = torch.tensor(checkpoint.tokenizer.encode(text).ids[:128])

    def loss(caches: list[Cache]) -> float:
        logits = torch.cat([model.forward(part, caches) for part in tokens.split(32)])
        return torch.nn.functional.cross_entropy(logits[32:-1], tokens[33:]).item()

    caches = [make() for _ in range(model.shape.layers)]
    whole = model.new_caches()
    with torch.no_grad():
        assert loss(caches) < loss(whole) + worse
    assert sum(cache.bytes() for cache in caches) < share * sum(cache.bytes() for cache in whole)
