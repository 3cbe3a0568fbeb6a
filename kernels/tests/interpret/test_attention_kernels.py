import pytest
import torch

from closeness import assert_near, relative_error
from steelyard_kernels.attention.column_sums import column_sums, column_sums_ref
from steelyard_kernels.attention.decode import paged_decode, paged_decode_ref
from steelyard_kernels.attention.fp8 import prefill_fp8, prefill_fp8_ref, quantize_heads
from steelyard_kernels.attention.merge import merge, merge_ref
from steelyard_kernels.attention.mla import mla_decode, mla_decode_ref
from steelyard_kernels.attention.prefill import prefill, prefill_ref

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("query_heads", "heads", "width", "page", "lengths", "split"),
    [
        (4, 4, 64, 16, [1, 16, 77], 32),
        (9, 3, 64, 16, [33, 130], 128),
        (5, 1, 80, 7, [50, 3], 16),
        (32, 2, 24, 1, [19, 0], 64),
    ],
    ids=["mha", "gqa", "mqa", "page-of-one"],
)
def test_paged_decode(
    dtype: torch.dtype, query_heads: int, heads: int, width: int, page: int, lengths: list[int], split: int
) -> None:
    batch, most = len(lengths), -(-max(lengths) // page)
    table = torch.randperm(batch * most + 2)[: batch * most].view(batch, most).int()
    keys, values = torch.randn(2, batch * most + 2, page, heads, width).to(dtype)
    query = torch.randn(batch, query_heads, width).to(dtype)
    arguments = (query, keys, values, table, torch.tensor(lengths))
    (out, lse), (expected, expected_lse) = paged_decode(*arguments, split=split), paged_decode_ref(*arguments)
    assert_near(out, expected)
    assert_near(lse, expected_lse)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("heads", "rank", "rotary", "page", "lengths", "split"),
    [(3, 32, 16, 5, [1, 29], 16), (17, 128, 64, 16, [70], 32), (16, 512, 64, 64, [40, 65], 64)],
)
def test_mla_decode(
    dtype: torch.dtype, heads: int, rank: int, rotary: int, page: int, lengths: list[int], split: int
) -> None:
    batch, most = len(lengths), -(-max(lengths) // page)
    pool = torch.randn(batch * most, page, rank + rotary).to(dtype)
    table = torch.randperm(batch * most).view(batch, most).int()
    latent, turned = torch.randn(batch, heads, rank).to(dtype), torch.randn(batch, heads, rotary).to(dtype)
    arguments = (latent, turned, pool, table, torch.tensor(lengths), (rank / 4 + rotary) ** -0.5)
    (out, lse), (expected, expected_lse) = mla_decode(*arguments, split=split), mla_decode_ref(*arguments)
    assert_near(out, expected)
    assert_near(lse, expected_lse)


@pytest.mark.parametrize(("parts", "rows", "width"), [(1, 1, 16), (3, 7, 80), (9, 2, 64)])
def test_merging(parts: int, rows: int, width: int) -> None:
    outputs, lse = torch.randn(parts, rows, width), torch.randn(parts, rows) * 20
    lse[:, 0] = -torch.inf
    outputs[:, 0] = 0
    lse[0] = -torch.inf
    for ours, theirs in zip(merge(outputs, lse), merge_ref(outputs, lse), strict=True):
        assert_near(ours, theirs)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("query_heads", "heads", "width", "prefix", "new"), [(2, 2, 64, 0, 65), (3, 1, 80, 70, 3), (4, 2, 24, 13, 100)]
)
def test_prefill_and_the_attention_each_key_receives(
    dtype: torch.dtype, query_heads: int, heads: int, width: int, prefix: int, new: int
) -> None:
    query = torch.randn(query_heads, new, width).to(dtype)
    keys, values = torch.randn(2, heads, prefix + new, width).to(dtype)
    (out, lse), (expected, expected_lse) = prefill(query, keys, values), prefill_ref(query, keys, values)
    assert_near(out, expected)
    assert_near(lse, expected_lse)
    torch.testing.assert_close(column_sums(query, keys, lse), column_sums_ref(query, keys, lse), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("query_heads", "heads", "width", "prefix", "new"), [(2, 2, 64, 0, 65), (3, 1, 32, 70, 3), (2, 1, 128, 13, 90)]
)
def test_fp8_prefill(query_heads: int, heads: int, width: int, prefix: int, new: int) -> None:
    query = quantize_heads(torch.randn(query_heads, new, width))
    keys, values = (quantize_heads(torch.randn(heads, prefix + new, width)) for _ in range(2))
    # P is rounded below the maximum so far, not the final one: another step of e4m3 in a few places.
    assert relative_error(prefill_fp8(query, keys, values), prefill_fp8_ref(query, keys, values)) < 0.02
