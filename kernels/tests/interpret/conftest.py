"""These tests run kernels in Triton's interpreter, which must be chosen before Triton is imported."""

import pytest

from steelyard_kernels import backend


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not backend.INTERPRET:
        for item in items:
            if "interpret" in item.path.parts:
                item.add_marker(pytest.mark.skip(reason="set KERNELS_BACKEND=interpret to run kernels on the CPU"))
