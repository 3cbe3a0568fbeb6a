"""SpinQuant (arXiv 2405.16406): learn QuaRot's rotations by gradient descent that never leaves the rotations.

Rotations form a manifold, on which Cayley SGD (Li, Li and Todorovic, arXiv 2002.01113) takes a step as follows. With gradient G at
X [n, n], XᵀX = I, and momentum M = m·M − G:
    Ŵ = M·Xᵀ − ½·X·(Xᵀ·M·Xᵀ),   W = Ŵ − Ŵᵀ (skew),   t = min(rate, 1 / ‖W‖₁),
    Y = X + t/2·W·(X + Y), solved by five fixed-point iterations from Y = X + t·M,
which is the Cayley transform (I − t/2·W)⁻¹(I + t/2·W)·X; then V = W·X keeps the momentum on the tangent. Rounding errors are taken
out by a QR step now and then. Written from the equations; neither paper's code is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

ITERATIONS = 5
REORTHOGONALIZE_EVERY = 100


class CayleySgd:
    """Steps a list of rotations [n, n] along the gradients that `backward` left in them."""

    def __init__(self, rotations: Sequence[Tensor], rate: float, momentum: float = 0.9) -> None:
        self.rotations, self.rate, self.momentum = list(rotations), rate, momentum
        self.velocities = [torch.zeros_like(rotation) for rotation in self.rotations]
        self.steps = 0

    @torch.no_grad()
    def step(self) -> None:
        """One step; clears the gradients."""
        self.steps += 1
        for number, rotation in enumerate(self.rotations):
            if rotation.grad is None:
                continue
            velocity = self.momentum * self.velocities[number] - rotation.grad
            outward = velocity @ rotation.T
            outward = outward - 0.5 * rotation @ (rotation.T @ outward)
            skew = outward - outward.T
            size = min(self.rate, 1.0 / (skew.abs().sum(0).max().item() + 1e-8))
            moved = rotation + size * velocity
            for _ in range(ITERATIONS):
                moved = rotation + size / 2 * skew @ (rotation + moved)
            self.velocities[number] = skew @ rotation
            rotation.copy_(nearest_rotation(moved) if self.steps % REORTHOGONALIZE_EVERY == 0 else moved)
            rotation.grad = None


def nearest_rotation(x: Tensor) -> Tensor:
    """x with orthonormal columns (QR, signs so that nothing flips)."""
    q, r = torch.linalg.qr(x)
    return q * r.diagonal().sign()


def learn(rotations: Sequence[Tensor], loss: Callable[[], Tensor], steps: int, rate: float = 1.5) -> list[float]:
    """Minimise `loss`, which reads the rotations, in place; the rate falls to zero along half a cosine. Returns the losses."""
    optimizer = CayleySgd(rotations, rate)
    losses = []
    for step in range(steps):
        optimizer.rate = rate * 0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / steps)).item())
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses
