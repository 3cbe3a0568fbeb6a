"""Seeds every test; a test that draws numbers is the same test in every run."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(20240229)
