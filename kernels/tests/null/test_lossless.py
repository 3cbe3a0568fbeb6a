import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard_kernels.lossless import huffman
from steelyard_kernels.lossless.exponents import CHUNK, decode, decode_parts, encode, entropy_bits
from steelyard_kernels.model import gguf


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.shape == right.shape and torch.equal(left.view(torch.int16), right.view(torch.int16))


@settings(max_examples=40)
@given(
    shape=st.sampled_from([(1,), (255,), (256,), (257,), (3, 700)]),
    spread=st.sampled_from([0.0, 1.0, 30.0]),
    seed=st.integers(0, 2**31),
)
def test_every_bit_comes_back(shape: tuple[int, ...], spread: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = (
        torch.randn(shape, generator=generator) * torch.exp(torch.randn(shape, generator=generator) * spread)
    ).bfloat16()
    assert same_bits(decode(encode(weight)), weight)


def test_every_possible_number_comes_back() -> None:
    weight = (
        torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.bfloat16)
    )  # NaN, infinities, −0 and subnormals among them
    assert same_bits(decode(encode(weight)), weight)


def test_nothing_comes_back_as_nothing() -> None:
    assert decode(encode(torch.empty(0, 5, dtype=torch.bfloat16))).shape == (0, 5)


def test_the_size_is_near_the_entropy_and_a_sixth_less_than_bf16_on_a_trained_model(
    checkpoint: gguf.Checkpoint,
) -> None:
    """SmolLM2's matrices went through 4 bits once, its embedding through 8; both exponents are spread like a trained model's."""
    for name in ("model.layers.5.mlp.up_proj.weight", "model.layers.20.self_attn.o_proj.weight"):
        weight = checkpoint.tensors[name]
        coded = encode(weight)
        bits = 8 * coded.nbytes() / weight.numel()
        assert entropy_bits(weight) <= bits
        # A Huffman code wastes less than a bit (in practice a few hundredths), the starts 32 bits a chunk.
        assert bits <= entropy_bits(weight) + 0.15 + 32 / CHUNK
        assert coded.nbytes() < 0.85 * weight.nbytes
        assert same_bits(decode(coded), weight)


def test_parts_are_the_whole_in_order() -> None:
    weight = torch.randn(1000).bfloat16()
    parts = list(decode_parts(encode(weight), chunks=2))
    assert [len(part) for part in parts] == [512, 488]
    assert same_bits(torch.cat(parts), weight)


@settings(max_examples=30)
@given(present=st.integers(1, 256), steepness=st.floats(0, 20), seed=st.integers(0, 2**31))
def test_a_code_is_prefix_free_and_short(present: int, steepness: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    counts = torch.zeros(256, dtype=torch.int64)
    symbols = torch.randperm(256, generator=generator)[:present]
    counts[symbols] = torch.exp(torch.rand(present, generator=generator).double() * steepness).long()
    code = huffman.build(counts)
    assert torch.equal(code.lengths > 0, counts > 0)
    assert code.lengths.max() <= huffman.LONGEST
    share = 0.5 ** code.lengths[counts > 0].double()
    assert share.sum() <= 1, "Kraft's inequality: the words fit"
    table, lengths = code.table()
    first = code.words[symbols].long() << (huffman.LONGEST - code.lengths[symbols].long())
    assert torch.equal(table[first].long(), symbols)
    assert torch.equal(lengths[first].int(), code.lengths[symbols])


def test_frequent_symbols_have_shorter_words() -> None:
    code = huffman.build(torch.tensor([1000, 100, 10, 1] + [0] * 252))
    assert code.lengths[:4].tolist() == [1, 2, 3, 3]


def test_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="float16"):
        encode(torch.zeros(3, dtype=torch.float16))
