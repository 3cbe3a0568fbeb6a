"""`python -m steelyard_kernels.quantize`: the command `steelyard-quantize`."""

import sys

from steelyard_kernels.quantize.cli import main

sys.exit(main())
