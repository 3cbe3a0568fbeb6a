import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaConfig, LlamaRotaryEmbedding, apply_rotary_pos_emb

from closeness import assert_near, relative_error
from steelyard_kernels.attention.column_sums import column_sums_ref
from steelyard_kernels.attention.decode import paged_decode, paged_decode_ref
from steelyard_kernels.attention.fp8 import prefill_fp8_ref, quantize_heads
from steelyard_kernels.attention.merge import merge_ref
from steelyard_kernels.attention.mla import absorb, expand, mla_decode, mla_decode_ref
from steelyard_kernels.attention.paged import gather, store
from steelyard_kernels.attention.prefill import prefill, prefill_ref
from steelyard_kernels.attention.rotary import Stretch, rates_of, rotate_ref

HEADS = {"mha": (4, 4), "gqa": (6, 2), "mqa": (5, 1)}


def paged_case(query_heads: int, heads: int, width: int, page: int, lengths: list[int]) -> tuple[Tensor, ...]:
    """Random fp64 pools whose pages lie in random order, and the query, table and lengths."""
    batch, most = len(lengths), -(-max(lengths) // page)
    table = torch.randperm(batch * most + 3)[: batch * most].view(batch, most).int()
    pools = torch.randn(2, batch * most + 3, page, heads, width, dtype=torch.float64)
    return torch.randn(batch, query_heads, width, dtype=torch.float64), pools[0], pools[1], table, torch.tensor(lengths)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize(("width", "page"), [(64, 16), (80, 1), (24, 7)])
def test_paged_decode_is_attention_over_the_gathered_tokens(kind: str, width: int, page: int) -> None:
    query, keys, values, table, lengths = paged_case(*HEADS[kind], width, page, [1, page, 3 * page + 2, 37])
    out, lse = paged_decode(query, keys, values, table, lengths)
    for row, length in enumerate(lengths.tolist()):
        k, v = (gather(pool, table[row], length).transpose(0, 1) for pool in (keys, values))
        expected = F.scaled_dot_product_attention(query[row].unsqueeze(1), k, v, enable_gqa=True)
        assert_near(out[row], expected.squeeze(1))
    assert lse.shape == (4, HEADS[kind][0])


def test_the_order_of_pages_does_not_matter() -> None:
    query, keys, values, table, lengths = paged_case(4, 2, 16, 4, [30, 17])
    order = torch.randperm(keys.shape[0])
    moved = torch.empty_like(order)
    moved[order] = torch.arange(len(order))
    shuffled = paged_decode_ref(query, keys[order], values[order], moved[table.long()].int(), lengths)
    for ours, theirs in zip(shuffled, paged_decode_ref(query, keys, values, table, lengths), strict=True):
        assert torch.equal(ours, theirs)


def test_an_empty_sequence_gives_zeros() -> None:
    query, keys, values, table, lengths = paged_case(4, 2, 16, 4, [3, 9])
    lengths[0] = 0
    out, lse = paged_decode_ref(query, keys, values, table, lengths)
    assert not out[0].any()
    assert (lse[0] == -torch.inf).all()


def test_stored_tokens_are_found_again() -> None:
    pool = torch.zeros(6, 4, 2, 8)
    table = torch.tensor([5, 0, 3], dtype=torch.int32)
    tokens = torch.randn(11, 2, 8)
    store(pool, table, 0, tokens[:3])
    store(pool, table, 3, tokens[3:])
    assert torch.equal(gather(pool, table, 11), tokens)
    with pytest.raises(ValueError, match="position 12 is in page 3 but the table has 3"):
        store(pool, table, 11, tokens[:2])


@settings(max_examples=30)
@given(cuts=st.lists(st.integers(0, 40), max_size=4), seed=st.integers(0, 2**31))
def test_merged_parts_are_the_whole_wherever_it_is_cut(cuts: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, 40, dtype=torch.float64, generator=generator) * 5
    values = torch.randn(40, 8, dtype=torch.float64, generator=generator)
    edges = [0, *sorted(cuts), 40]
    parts = [(scores[:, a:b], values[a:b]) for a, b in itertools.pairwise(edges)]  # some are empty
    outputs = torch.stack([part.softmax(-1) @ v for part, v in parts])
    out, lse = merge_ref(outputs, torch.stack([part.logsumexp(-1) for part, _ in parts]))
    assert_near(out, scores.softmax(-1) @ values)
    assert_near(lse, scores.logsumexp(-1))


def test_merging_nothing_gives_zeros() -> None:
    out, lse = merge_ref(torch.zeros(2, 3, 4), torch.full((2, 3), -torch.inf))
    assert not out.any()
    assert (lse == -torch.inf).all()


@pytest.mark.parametrize(("heads", "nope", "rotary", "rank", "v"), [(3, 16, 8, 32, 24), (16, 128, 64, 512, 128)])
def test_absorbed_mla_is_mla(heads: int, nope: int, rotary: int, rank: int, v: int) -> None:
    """Against the naive form in fp64: every head's keys and values are made, then attended to."""
    double = {"dtype": torch.float64}
    up_key, up_value = (
        torch.randn(heads, nope, rank, **double) / rank**0.5,
        torch.randn(heads, v, rank, **double) / rank**0.5,
    )
    page, lengths = 5, torch.tensor([1, 23, 40])
    pool, table = torch.randn(30, page, rank + rotary, **double), torch.randperm(30)[:24].view(3, 8).int()
    query, turned = torch.randn(3, heads, nope, **double), torch.randn(3, heads, rotary, **double)
    scale = (nope + rotary) ** -0.5
    latent, _ = mla_decode(absorb(query, up_key), turned, pool, table, lengths, scale)
    for row, length in enumerate(lengths.tolist()):
        stored = gather(pool, table[row], length)
        c, r = stored[:, :rank], stored[:, rank:]
        keys = torch.cat([torch.einsum("tr,hnr->htn", c, up_key), r.expand(heads, -1, -1)], -1)
        values = torch.einsum("tr,hvr->htv", c, up_value)
        full = torch.cat([query[row], turned[row]], -1).unsqueeze(1)
        expected = F.scaled_dot_product_attention(full, keys, values).squeeze(1)
        assert_near(expand(latent, up_value)[row], expected)


def test_a_pool_of_the_wrong_width_is_refused() -> None:
    with pytest.raises(ValueError, match="570 values a token; queries of 512 and 64 need 576"):
        mla_decode(
            torch.zeros(1, 1, 512), torch.zeros(1, 1, 64), torch.zeros(1, 1, 570), torch.zeros(1, 1), torch.ones(1), 1.0
        )


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize(("prefix", "new"), [(0, 17), (30, 5), (3, 1)])
def test_prefill_sees_the_prefix_and_the_past(kind: str, prefix: int, new: int) -> None:
    query_heads, heads = HEADS[kind]
    query = torch.randn(query_heads, new, 20, dtype=torch.float64)
    keys, values = torch.randn(2, heads, prefix + new, 20, dtype=torch.float64)
    out, lse = prefill(query, keys, values)
    mask = torch.arange(prefix + new) <= prefix + torch.arange(new)[:, None]
    assert_near(out, F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True))
    sums = column_sums_ref(query, keys, lse)
    assert sums.sum().item() == pytest.approx(query_heads * new, rel=1e-5), "each query gives away 1"


def test_column_sums_are_those_of_the_probabilities() -> None:
    query, keys = torch.randn(4, 6, 8), torch.randn(2, 9, 8)
    _, lse = prefill_ref(query, keys, keys)
    mask = torch.arange(9) <= 3 + torch.arange(6)[:, None]
    scores = query @ keys.repeat_interleave(2, 0).transpose(1, 2) / 8**0.5
    probabilities = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    assert_near(column_sums_ref(query, keys, lse), probabilities.view(2, 2, 6, 9).sum((1, 2)))


def test_fp8_attention_is_near_attention_on_what_its_codes_mean() -> None:
    query, keys, values = torch.randn(4, 33, 64), torch.randn(2, 50, 64), torch.randn(2, 50, 64)
    quantized = [quantize_heads(part) for part in (query, keys, values)]
    meant = [part.codes.float() * part.scale[:, None, None] for part in quantized]
    expected, _ = prefill_ref(*meant)
    assert relative_error(prefill_fp8_ref(*quantized), expected) < 0.02  # P has 3 bits of mantissa
    assert relative_error(prefill_fp8_ref(*quantized), prefill_ref(query, keys, values)[0]) < 0.1


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512}


@pytest.mark.parametrize(
    ("scaling", "stretch"),
    [
        ({"rope_type": "default"}, None),
        ({"rope_type": "linear", "factor": 4.0}, Stretch(4.0)),
        ({"rope_type": "llama3", **LLAMA3}, Stretch(8.0, 512, 1.0, 4.0)),
    ],
)
def test_turning_is_that_of_transformers_and_depends_on_distance_only(scaling: dict, stretch: Stretch | None) -> None:
    x = torch.randn(3, 11, 64)
    positions, rates = torch.arange(11) * 40 + 5, rates_of(64, 1e5, stretch)
    parameters = {"rope_theta": 1e5, **scaling}
    rope = LlamaRotaryEmbedding(
        LlamaConfig(head_dim=64, rope_parameters=parameters, num_attention_heads=3, hidden_size=192)
    )
    cosine, sine = rope(x, positions[None])
    expected, _ = apply_rotary_pos_emb(x[None], x[None], cosine, sine)
    torch.testing.assert_close(rotate_ref(x, positions, rates), expected[0], atol=1e-3, rtol=1e-3)
    far, near = (rotate_ref(x.double(), positions + offset, rates) for offset in (700, 0))
    assert_near(far @ far.transpose(1, 2), near @ near.transpose(1, 2), scale=1e3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: paged_decode(torch.zeros(1, 5, 8), *torch.zeros(2, 1, 1, 2, 8), torch.zeros(1, 1), torch.ones(1)),
            "5 query heads",
        ),
        (lambda: prefill(torch.zeros(2, 5, 8), *torch.zeros(2, 2, 4, 8)), "5 new queries but only 4 keys"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_the_latent_reference_matches_decode_with_one_shared_head() -> None:
    """MLA over latents is MQA whose values are the first part of its keys."""
    pool, table = torch.randn(9, 4, 48), torch.arange(9).view(1, 9)
    query = torch.randn(1, 3, 48)
    ours, _ = mla_decode_ref(query[..., :32], query[..., 32:], pool, table, torch.tensor([34]), 48**-0.5)
    theirs, _ = paged_decode_ref(query, pool.unsqueeze(2), pool.unsqueeze(2), table, torch.tensor([34]))
    assert_near(ours, theirs[..., :32])
