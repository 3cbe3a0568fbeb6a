import pytest
import torch
from scipy.linalg import hadamard as scipy_hadamard

from steelyard_kernels.model import gguf
from steelyard_kernels.model.llama import Llama
from steelyard_kernels.rotation.hadamard import hadamard, random_rotation, turn_ref
from steelyard_kernels.rotation.quarot import rotated
from steelyard_kernels.rotation.spin import CayleySgd, learn, nearest_rotation

ORDERS = [1, 2, 4, 12, 20, 28, 36, 40, 44, 60, 64, 108, 140, 576, 1536]


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_is_orthogonal_and_of_ones(order: int) -> None:
    matrix = hadamard(order).double()
    assert matrix.abs().eq(1).all()
    assert torch.equal(matrix @ matrix.T, torch.eye(order, dtype=torch.float64) * order)


@pytest.mark.parametrize("order", [2, 16, 128])
def test_powers_of_two_are_sylvesters(order: int) -> None:
    assert torch.equal(hadamard(order), torch.tensor(scipy_hadamard(order)).float())


@pytest.mark.parametrize("order", [3, 6, 172, 92])
def test_an_order_that_is_not_built_is_refused(order: int) -> None:
    with pytest.raises(ValueError, match=f"order {order}"):
        hadamard(order)


@pytest.mark.parametrize("order", [1, 12, 64, 576, 1536])
def test_the_fast_way_is_the_matrix(order: int) -> None:
    x = torch.randn(3, order, dtype=torch.float64)
    torch.testing.assert_close(turn_ref(x), x @ hadamard(order).double().T / order**0.5)


def test_an_outlier_spreads_over_all() -> None:
    x = torch.zeros(576)
    x[17] = 24.0
    torch.testing.assert_close(turn_ref(x).abs(), torch.ones(576))


def test_a_rotated_model_says_the_same_and_has_no_outliers(checkpoint: gguf.Checkpoint, model: Llama) -> None:
    # The first layers and tokens of the real model: its outliers are there already.
    config = {**checkpoint.config, "num_hidden_layers": 5}
    small = Llama(
        config, {**model.weights, "model.embed_tokens.weight": model.weights["model.embed_tokens.weight"][:1000]}
    )
    turned = rotated(small, config, random_rotation(576, 1), random_rotation(64, 2))
    tokens = torch.randint(100, 1000, (24,))

    def run(one: Llama) -> tuple[torch.Tensor, dict[str, float]]:
        """Logits, and max|x| / rms of the inputs of some linears, by token."""
        before, found = one.on_input, {}

        def watch(name: str, x: torch.Tensor) -> torch.Tensor:
            x = before(name, x) if before else x
            if name.startswith("model.layers.3."):
                found[name.rsplit(".", 1)[1]] = (x.abs().amax(-1) / x.square().mean(-1).sqrt()).mean().item()
            return x

        one.on_input = watch
        with torch.no_grad():
            return one.forward(tokens), found

    (expected, plain), (logits, flat) = run(small), run(turned)
    torch.testing.assert_close(logits, expected, atol=5e-3, rtol=1e-3)
    for name in ("q_proj", "gate_proj", "down_proj"):
        assert flat[name] < 0.7 * plain[name], name


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_learned_rotation_finds_the_one_it_should_and_stays_a_rotation(momentum: float) -> None:
    """Procrustes: the rotation that brings X onto Y is known."""
    goal = nearest_rotation(torch.randn(12, 12, dtype=torch.float64))
    x = torch.randn(50, 12, dtype=torch.float64)
    start = goal @ torch.linalg.matrix_exp(0.3 * (lambda a: a - a.T)(torch.randn(12, 12, dtype=torch.float64)) / 4)
    rotation = start.clone().requires_grad_()
    optimizer = CayleySgd([rotation], rate=0.05, momentum=momentum)
    losses = []
    for _ in range(300):
        loss = (x @ rotation - x @ goal).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]
    identity = torch.eye(12, dtype=torch.float64)
    assert (rotation.T @ rotation - identity).abs().max() < 1e-3


def test_one_small_step_goes_down_the_gradient_along_the_rotations() -> None:
    """To first order the step is exp(t·W)·X."""
    rotation = nearest_rotation(torch.randn(6, 6, dtype=torch.float64)).requires_grad_()
    gradient = torch.randn(6, 6, dtype=torch.float64)
    before = rotation.detach().clone()
    (rotation * gradient).sum().backward()
    CayleySgd([rotation], rate=1e-4).step()
    outward = -gradient @ before.T
    outward = outward - 0.5 * before @ (before.T @ outward)
    expected = torch.linalg.matrix_exp(1e-4 * (outward - outward.T)) @ before
    torch.testing.assert_close(rotation.detach(), expected, atol=1e-9, rtol=0)
    assert (rotation.detach() * gradient).sum() < (before * gradient).sum()


def test_learning_beats_a_fixed_rotation_where_the_data_have_a_structure() -> None:
    """The range of a token is what its 4-bit rounding costs; learning lowers it below a random Hadamard rotation's."""
    x = (torch.randn(512, 16) * torch.logspace(0, 2, 16)) @ nearest_rotation(torch.randn(16, 16))

    def rounding_error(rotation: torch.Tensor) -> float:
        y = x @ rotation
        step = y.abs().amax(-1, keepdim=True) / 7
        return ((y / step).round() * step - y).square().mean().item()

    fixed = random_rotation(16, 0).float()
    learned = fixed.clone().requires_grad_()
    losses = learn([learned], lambda: (x @ learned).abs().amax(-1).square().mean(), steps=60, rate=0.01)
    assert losses[-1] < losses[0]
    assert rounding_error(learned.detach()) < rounding_error(fixed)


def test_turning_queries_and_keys_changes_no_score_and_spares_a_rounded_key_its_outliers() -> None:
    """R3, after rotation by position."""
    queries, keys = torch.randn(3, 20, 64, dtype=torch.float64), torch.randn(3, 30, 64, dtype=torch.float64)
    keys[..., 5] *= 20  # a channel that is always large, as real keys have
    scores = queries @ keys.transpose(1, 2)
    turned = turn_ref(queries) @ turn_ref(keys).transpose(1, 2)
    torch.testing.assert_close(turned, scores)

    def four_bits(x: torch.Tensor) -> torch.Tensor:
        step = x.abs().amax(-1, keepdim=True) / 7
        return (x / step).round() * step

    plain = queries @ four_bits(keys).transpose(1, 2) - scores
    spread = turn_ref(queries) @ four_bits(turn_ref(keys)).transpose(1, 2) - scores
    assert spread.norm() < 0.5 * plain.norm()
