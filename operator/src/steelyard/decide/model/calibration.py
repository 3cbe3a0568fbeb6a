"""What kernels reach of the hardware, as measured: factors fitted to deployments that others measured.

`FITTED` is the fit to all 35 anchors of `python -m bench.evidence silicon` (H100 to GB300; vLLM, SGLang, TensorRT-LLM), which
also tells how far off such a fit is for a deployment that it has not seen. A service that runs is measured, and the
autoscaler's own fit replaces all of this.
"""

from steelyard.decide.model.roofline import Factors

FITTED = Factors(arithmetic=0.5, bandwidth=0.8, launch_seconds=0.002, layer_seconds=47e-6, collective_seconds=13e-6)
