"""The gateway against `vllm-router` and against engines called directly, on pinned cores in one run.

    PYTHONPATH=operator e2e/bootstrap.sh python -m bench.gateway      (or `make bench`)

An engine stub and a load client in C cost so little that the gateway between them is what is measured.
"""
