"""vLLM without an engine: a checkpoint's weights loaded by its own loader on the CPU, in this process."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from vllm_checkpoints import DTYPES, folder


@pytest.fixture(scope="session")
def distributed() -> None:
    """One process that is all of tensor and pipeline parallelism."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed.parallel_state import init_distributed_environment, initialize_model_parallel
    from vllm.plugins import load_general_plugins
    from vllm.v1.worker.cpu_model_runner import _set_torch_accelerator_to_noop

    load_general_plugins()
    _set_torch_accelerator_to_noop()  # the loader waits for a device, which an engine on a CPU makes harmless in the same way
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, "tcp://127.0.0.1:29517", 0, "gloo")
        initialize_model_parallel(1, 1)


@pytest.fixture(scope="session")
def load(distributed: None) -> Callable[..., tuple[Any, Any]]:
    """A function from a checkpoint's name, and maybe a type, to vLLM's config and its loaded model."""

    def load(name: str, dtype: torch.dtype | None = None) -> tuple[Any, Any]:
        from vllm.config import set_current_vllm_config
        from vllm.engine.arg_utils import EngineArgs
        from vllm.model_executor.model_loader import get_model

        arguments = EngineArgs(
            model=str(folder(name)), dtype=dtype or DTYPES.get(name, torch.float32), enforce_eager=True
        )
        config = arguments.create_engine_config()
        with set_current_vllm_config(config):
            return config, get_model(vllm_config=config)

    return load
