"""SpinQuant's learning on a tiny model: what its cost foretells, what a few steps do, what a file keeps."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

import tiny_model
from steelyard_kernels import cli
from steelyard_kernels.model.llama import Llama
from steelyard_kernels.rotation import cost, learned
from steelyard_kernels.rotation.quarot import fold_norms, rotate_weights, turn_down

HEAD = tiny_model.WIDTH // tiny_model.HEADS
Rounding = Callable[[Tensor], Tensor]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Llama:
    folder = tiny_model.write(tmp_path_factory.mktemp("learning") / "tiny")
    tensors = {name: one for file in folder.glob("*.safetensors") for name, one in load_file(file).items()}
    return Llama(tiny_model.CONFIG, tensors)


@pytest.fixture(scope="module")
def windows() -> Tensor:
    return torch.randint(0, 256, (24, 48), generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="module")
def gathered(tiny: Llama, windows: Tensor) -> cost.Gathered:
    return cost.gather(tiny, tiny_model.CONFIG, windows)


@torch.no_grad()
def divergence(model: Llama, windows: Tensor, rotations: learned.Rotations, rounding: Rounding) -> float:
    """Nats a token from the model's own predictions, its inputs that R1 and R2 turn rounded after their turn."""
    folded = fold_norms(model.weights, model.shape.layers)
    turned = Llama(tiny_model.CONFIG, {})
    turned.weights = rotate_weights(folded, model.shape, rotations.residual.float(), rotations.value.float())
    turned.on_input = lambda name, x: turn_down(name, x) if name.endswith("down_proj") else rounding(x)
    found = [
        F.kl_div(turned.forward(one).log_softmax(-1), model.forward(one).log_softmax(-1), log_target=True,
                 reduction="batchmean").item()
        for one in windows
    ]  # fmt: skip
    return sum(found) / len(found)


def test_the_cost_is_the_error_of_what_linears_make_of_rounded_inputs(tiny: Llama, gathered: cost.Gathered) -> None:
    """Of the second layer's gate and up, and of its o."""
    folded = fold_norms(tiny.weights, tiny.shape.layers)
    rotations = learned.fixed(tiny_model.WIDTH, HEAD)
    for inputs, site, names, rotation in (
        (gathered.residual, 3, ("mlp.gate_proj", "mlp.up_proj"), rotations.residual),
        (gathered.value, 1, ("self_attn.o_proj",), torch.block_diag(*[rotations.value] * tiny_model.HEADS)),
    ):
        weight = torch.cat([folded[f"model.layers.1.{name}.weight"] for name in names]).double()
        x = inputs.x[site].double()
        wrong = (learned.four_bits(x @ rotation) @ rotation.T - x) @ weight.T
        expected = wrong.square().sum() / (x @ weight.T).square().sum()
        small = rotation[: tiny_model.WIDTH if len(names) > 1 else HEAD, : tiny_model.WIDTH if len(names) > 1 else HEAD]
        one = cost.Inputs(inputs.x[site : site + 1], inputs.root[site : site + 1])
        assert cost.cost(one, small.float(), learned.four_bits).item() == pytest.approx(expected.item(), rel=0.02)


def test_a_few_steps_lower_the_cost_and_what_it_stands_for(
    tiny: Llama, windows: Tensor, gathered: cost.Gathered
) -> None:
    start = learned.fixed(tiny_model.WIDTH, HEAD)
    heard: list[float] = []
    found = learned.learn(gathered, start, 60, lambda step, loss: heard.append(loss))
    assert heard == found.losses
    assert sum(found.losses[-10:]) < 0.95 * sum(found.losses[:10])
    before, after = (divergence(tiny, windows, one, learned.four_bits) for one in (start, found))
    assert after < before
    for rotation in found[:2]:
        torch.testing.assert_close(
            rotation.T @ rotation, torch.eye(len(rotation), dtype=torch.float64), atol=1e-9, rtol=0
        )


@pytest.mark.parametrize("largest", [-2.0, 2.0])
def test_the_error_of_rounding_falls_where_a_tokens_largest_number_does(largest: float) -> None:
    """Straight through alone, the error would have no gradient at all."""
    x = torch.tensor([0.3, largest, 0.8, 0.5], requires_grad=True)
    (learned.four_bits(x) - x).square().sum().backward()
    assert x.grad is not None
    assert x.grad[1] * largest > 0
    assert x.grad[[0, 2, 3]].eq(0).all()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--samples", "1", "--tokens", "32"), ("--samples 1", "--tokens 32", "32 tokens", "64", "raise one of them")),
        (("--samples", "3", "--tokens", "21"), ("--samples 3", "--tokens 21", "63 tokens")),
    ],
)
def test_too_few_tokens_for_a_step_are_told_and_nothing_is_written(
    given: tuple[str, ...], told: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tiny_model.write(tmp_path / "tiny"), tmp_path / "rotations.safetensors"
    assert cli.main(["learn-rotations", str(folder), str(out), "--steps", "2", *given]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert all(one in line for one in told)
    assert not out.exists()


def test_as_many_tokens_as_a_step_draws_are_enough(tmp_path: Path) -> None:
    folder, out = tiny_model.write(tmp_path / "tiny"), tmp_path / "rotations.safetensors"
    given = ["--steps", "2", "--samples", "2", "--tokens", "32"]
    assert cli.main(["learn-rotations", str(folder), str(out), *given]) == 0
    assert len(learned.read(out, tiny_model.WIDTH, HEAD).losses) == 2


@pytest.mark.parametrize("option", ["--samples", "--tokens", "--steps"])
def test_nothing_at_all_is_no_number(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["learn-rotations", str(tmp_path), str(tmp_path / "out"), option, "0"])
    assert stopped.value.code == 2
    assert f"argument {option}: 0 is not positive" in capsys.readouterr().err


def test_no_more_tokens_are_drawn_than_were_gathered(tiny: Llama, windows: Tensor) -> None:
    few = cost.gather(tiny, tiny_model.CONFIG, windows[:1])
    with pytest.raises(ValueError, match="48 tokens were gathered, fewer than the 64 that are drawn"):
        learned.learn(few, learned.fixed(tiny_model.WIDTH, HEAD), 1)


def test_a_file_keeps_rotations_and_only_those(tmp_path: Path) -> None:
    start = learned.fixed(tiny_model.WIDTH, HEAD)._replace(losses=[0.5, 0.25])
    learned.write(start, tmp_path / "rotations.safetensors")
    again = learned.read(tmp_path / "rotations.safetensors", tiny_model.WIDTH, HEAD)
    assert again.losses == start.losses
    for kept, rotation in zip(again[:2], start[:2], strict=True):
        torch.testing.assert_close(kept, rotation, atol=1e-3, rtol=0)
        torch.testing.assert_close(kept.T @ kept, torch.eye(len(kept), dtype=torch.float64), atol=1e-9, rtol=0)
    with pytest.raises(ValueError, match=r"residual is \[64, 64\]; this model needs \[576, 576\]"):
        learned.read(tmp_path / "rotations.safetensors", 576, 64)
    save_file({"residual": torch.ones(64, 64), "value": torch.eye(16)}, tmp_path / "ones.safetensors")
    with pytest.raises(ValueError, match="residual is no rotation"):
        learned.read(tmp_path / "ones.safetensors", tiny_model.WIDTH, HEAD)
