"""What vLLM lacks for our checkpoints, offered through its own registries (entry point `vllm.general_plugins`).

vLLM calls `register` in each of its processes, maybe more than once. It adds the quantization method of ternary weights, and
the one of NF4 weights where nobody else has (an older vLLM, another plug-in). On a CPU it adds a kernel for each format that has
none there: 4-bit integers where the build lacks its own (it is made for AVX512 and AMX), NVFP4, and MXFP4. On a GPU vLLM's own
kernels for those are better than ours, so nothing is added. Checked with vLLM 0.32.
"""

from __future__ import annotations

import os

DISABLED = "VLLM_DISABLED_KERNELS"
NEED_AVX512 = ("CPUWNA16LinearKernel", "Dynamic4bitLinearKernel", "ZentorchWNA16LinearKernel")


def register() -> None:
    """Called by vLLM. Registering twice changes nothing."""
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS  # only vLLM's processes have it
    from vllm.platforms import current_platform

    from steelyard_kernels.formats.bitsandbytes import METHOD
    from steelyard_kernels.vllm_plugin import ternary as ternary  # registers on import

    if METHOD not in QUANTIZATION_METHODS:
        from steelyard_kernels.vllm_plugin import nf4 as nf4  # registers on import

    if current_platform.is_cpu():
        _register_cpu_kernels()


def _register_cpu_kernels() -> None:
    import torch
    from vllm.model_executor.kernels import linear
    from vllm.model_executor.kernels.linear.nvfp4.emulation import EmulationNvFp4LinearKernel
    from vllm.platforms.interface import PlatformEnum

    from steelyard_kernels.vllm_plugin.four_bits import CpuInt4Kernel, CpuMxFp4Kernel

    if CpuInt4Kernel not in linear._POSSIBLE_KERNELS.get(PlatformEnum.CPU, []):
        linear.register_linear_kernel(CpuInt4Kernel, PlatformEnum.CPU, "mp")
    if not linear._POSSIBLE_NVFP4_KERNELS.get(PlatformEnum.CPU):
        linear.register_linear_kernel(EmulationNvFp4LinearKernel, PlatformEnum.CPU, "nvfp4")
    if not linear._POSSIBLE_MXFP4_KERNELS.get(PlatformEnum.CPU):
        linear.register_linear_kernel(CpuMxFp4Kernel, PlatformEnum.CPU, "mxfp4")
    if not hasattr(torch.ops._C, "cpu_gemm_wna16"):
        # These say that they can, come before ours, and then miss their operator.
        disabled = [name for name in os.environ.get(DISABLED, "").split(",") if name]
        os.environ[DISABLED] = ",".join(dict.fromkeys([*disabled, *NEED_AVX512]))
