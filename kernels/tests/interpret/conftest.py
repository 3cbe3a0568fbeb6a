"""These tests run the kernels: in Triton's interpreter (KERNELS_BACKEND=interpret), or compiled where there is a GPU."""

from collections.abc import Iterator

import pytest
import torch

from steelyard_kernels import backend


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if backend.INTERPRET or torch.cuda.is_available():
        return
    for item in items:
        if "interpret" in item.path.parts:
            item.add_marker(pytest.mark.skip(reason="set KERNELS_BACKEND=interpret to run kernels on the CPU"))


@pytest.fixture(autouse=True)
def where_kernels_run() -> Iterator[None]:
    """Tensors are made where the kernels run."""
    with torch.device("cpu" if backend.INTERPRET else "cuda"):
        yield
