"""Mixtures of experts, against transformers' modules, and spread over two processes against one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DeepseekV3Config, MixtralConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock, load_balancing_loss_func

from steelyard_kernels.moe import capacity, losses
from steelyard_kernels.moe.experts import Experts, forward
from steelyard_kernels.moe.grouped import grouped_matmul, permute, tiles, unpermute
from steelyard_kernels.moe.routers import Routing, grouped_sigmoid, rebalanced, softmax_top_k

seeds = st.integers(0, 999)


def randomized(module: torch.nn.Module) -> torch.nn.Module:
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return module


def test_a_mixtral_block_computes_what_transformers_does() -> None:
    config = MixtralConfig(hidden_size=24, intermediate_size=40, num_local_experts=6, num_experts_per_tok=2)
    block, x = randomized(MixtralSparseMoeBlock(config)), torch.randn(17, 24)
    with torch.no_grad():
        routing = softmax_top_k(x @ block.gate.weight.T, 2)
        ours = forward(Experts(block.experts.gate_up_proj, block.experts.down_proj), x, routing)
        theirs = block(x.unsqueeze(0))
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs
    torch.testing.assert_close(ours, theirs.view_as(ours), atol=1e-5, rtol=1e-4)


def test_a_deepseek_block_computes_what_transformers_does() -> None:
    config = DeepseekV3Config(
        hidden_size=24, moe_intermediate_size=16, n_routed_experts=16, num_experts_per_tok=4, n_group=4, topk_group=2,
        n_shared_experts=1, routed_scaling_factor=2.5, norm_topk_prob=True,
    )  # fmt: skip
    block, x = randomized(DeepseekV3MoE(config)), torch.randn(1, 13, 24)
    block.gate.e_score_correction_bias.normal_(std=0.3)
    with torch.no_grad():
        logits = x[0] @ block.gate.weight.T
        routing = grouped_sigmoid(logits, block.gate.e_score_correction_bias, 4, 4, 2, 2.5)
        ours = forward(Experts(block.experts.gate_up_proj, block.experts.down_proj), x[0], routing)
        theirs = block(x) - block.shared_experts(x)
    torch.testing.assert_close(ours, theirs[0], atol=1e-5, rtol=1e-4)


@given(seed=seeds, k=st.integers(1, 4))
def test_weights_sum_to_one_and_are_of_the_largest(seed: int, k: int) -> None:
    logits = torch.randn(9, 8, generator=torch.Generator().manual_seed(seed))
    routing = softmax_top_k(logits, k)
    torch.testing.assert_close(routing.weights.sum(1), torch.ones(9))
    chosen = torch.zeros(9, 8, dtype=torch.bool).scatter_(1, routing.experts, True)
    assert (logits.masked_fill(~chosen, torch.inf).amin(1) >= logits.masked_fill(chosen, -torch.inf).amax(1)).all()


@given(seed=seeds)
def test_a_bias_chooses_and_never_weighs(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits, bias = torch.randn(9, 8, generator=generator), torch.zeros(8)
    bias[3] = 5.0  # everybody must take expert 3
    routing = grouped_sigmoid(logits, bias, 3, 2, 2)
    assert (routing.experts == 3).any(1).all()
    scores = logits.sigmoid().gather(1, routing.experts)
    torch.testing.assert_close(routing.weights, scores / scores.sum(1, keepdim=True))


def test_the_bias_evens_the_load() -> None:
    generator = torch.Generator().manual_seed(1)
    lean = torch.linspace(-1, 1, 8)  # experts that are liked more and more
    bias = torch.zeros(8)

    def load() -> torch.Tensor:
        routing = grouped_sigmoid(torch.randn(512, 8, generator=generator) + lean, bias, 2, 2, 2)
        return torch.bincount(routing.experts.flatten(), minlength=8).float()

    before = load().std()
    for _ in range(300):
        routing = grouped_sigmoid(torch.randn(512, 8, generator=generator) + lean, bias, 2, 2, 2)
        bias = rebalanced(bias, routing, 0.002)
    assert load().std() < 0.3 * before


@given(seed=seeds, places=st.integers(1, 9), k=st.integers(1, 3))
def test_no_expert_takes_more_than_its_places_and_first_choices_go_first(seed: int, places: int, k: int) -> None:
    logits = torch.randn(16, 5, generator=torch.Generator().manual_seed(seed)) * 2
    routing = softmax_top_k(logits, k)
    keep = capacity.kept(routing, places)
    load = torch.bincount(routing.experts[keep], minlength=5)
    wanted = torch.bincount(routing.experts.flatten(), minlength=5)
    assert torch.equal(load, wanted.clamp(max=places))  # places are used while anyone wants them
    for choice in range(1, k):
        for expert in range(5):
            late = keep[:, choice] & (routing.experts[:, choice] == expert)
            early_lost = (~keep[:, :choice] & (routing.experts[:, :choice] == expert)).any()
            assert not (late.any() and early_lost)


@pytest.mark.parametrize(
    ("tokens", "k", "experts", "factor", "places"),
    [(8, 2, 4, 1.0, 4), (8, 2, 4, 1.25, 5), (7, 1, 8, 1.0, 1), (1, 1, 64, 1.0, 1)],
)
def test_capacity_is_the_mean_load_times_its_factor(
    tokens: int, k: int, experts: int, factor: float, places: int
) -> None:
    assert capacity.capacity(tokens, k, experts, factor) == places


def test_a_dropped_token_contributes_nothing() -> None:
    routing = Routing(torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, 1), torch.ones(3, 1))
    experts = Experts(torch.randn(1, 8, 4), torch.randn(1, 4, 4))
    out = forward(experts, torch.randn(3, 4), routing, capacity.kept(routing, 2))
    assert out[:2].abs().sum() > 0
    assert not out[2].any()
    assert capacity.dropped(routing, 2).weights.flatten().tolist() == [1, 1, 0]


def test_losses_are_those_of_transformers_and_of_their_definition() -> None:
    logits = torch.randn(40, 8)
    routing = softmax_top_k(logits, 2)
    theirs = load_balancing_loss_func((logits,), 8, 2)
    torch.testing.assert_close(losses.balance(routing), torch.as_tensor(theirs))
    torch.testing.assert_close(losses.z(logits), logits.exp().sum(1).log().pow(2).mean())
    # The balanced value is k.
    even = Routing(torch.arange(8).repeat(2).view(8, 2), torch.full((8, 2), 0.5), torch.full((8, 8), 1 / 8))
    torch.testing.assert_close(losses.balance(even), torch.tensor(2.0))


@given(seed=seeds, k=st.integers(1, 3))
def test_rows_go_out_and_come_back(seed: int, k: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(11, 4, generator=generator)
    routing = softmax_top_k(torch.randn(11, 5, generator=generator), k)
    placed = permute(x, routing.experts, 5)
    assert int(placed.counts.sum()) == 11 * k
    torch.testing.assert_close(unpermute(placed.x, placed, routing.weights), x)  # weights sum to 1


@given(counts=st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_tiles_cover_every_row_once_and_stay_within_an_expert(counts: list[int]) -> None:
    expert, first, end = tiles(torch.tensor(counts), 16)
    owner = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    rows = [
        row
        for start, stop in zip(first.tolist(), end.tolist(), strict=True)
        for row in range(start, min(start + 16, stop))
    ]
    assert sorted(rows) == list(range(sum(counts)))
    for which, start in zip(expert.tolist(), first.tolist(), strict=True):
        assert owner[start] == which


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="k is 9; with 8 experts"):
        softmax_top_k(torch.randn(2, 8), 9)
    with pytest.raises(ValueError, match="8 experts in 3 groups"):
        grouped_sigmoid(torch.randn(2, 8), torch.zeros(8), 2, 3, 1)
    with pytest.raises(ValueError, match="counts sum to 3"):
        grouped_matmul(torch.randn(4, 8), torch.randn(2, 3, 8), torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="5 experts do not divide among 2"):
        Experts(torch.randn(5, 8, 4), torch.randn(5, 4, 4)).of_process(0, 2)


WORKER = """
import sys, torch, torch.distributed as dist
from steelyard_kernels.moe import capacity
from steelyard_kernels.moe.experts import Experts, forward, forward_spread
from steelyard_kernels.moe.routers import softmax_top_k
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
generator = torch.Generator().manual_seed(4)
experts = Experts(torch.randn(6, 20, 12, generator=generator), torch.randn(6, 12, 10, generator=generator))
for tokens, lean in ((9, 0.0), (5, 9.0)):  # the second time nearly all go to one process's experts
    x = torch.randn(2, tokens, 12, generator=generator)[rank, : tokens - rank]  # the processes hold different numbers
    logits = torch.randn(2, tokens, 6, generator=generator)[rank, : tokens - rank]
    logits[:, 1] += lean
    routing = softmax_top_k(logits, 2)
    for keep in (None, capacity.kept(routing, 2)):
        spread = forward_spread(experts.of_process(rank, 2), x, routing, keep)
        torch.testing.assert_close(spread, forward(experts, x, routing, keep), atol=1e-5, rtol=1e-4)
dist.barrier()
dist.destroy_process_group()
print("equal")
"""


def test_two_processes_compute_what_one_does(tmp_path: Path) -> None:
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-c", WORKER]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": environment}
    workers = [subprocess.Popen([*command, str(rank), str(tmp_path / "meet")], **pipes) for rank in range(2)]
    try:
        said = [worker.communicate(timeout=600)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], said
    assert all(text.endswith("equal\n") for text in said)
