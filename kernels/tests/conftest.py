"""Every test is the same in every run: numbers are seeded, and hypothesis draws what it drew before."""

import pytest
import torch
from hypothesis import HealthCheck, settings

# A busy machine is slow to draw examples, which says nothing about the tests.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(20240229)
