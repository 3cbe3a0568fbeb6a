"""What the operator costs: calls, bytes, CPU and memory, alone, for a change, and with up to a thousand services.

    PYTHONPATH=operator e2e/bootstrap.sh python -m bench.operator      (or `make bench`)

etcd and the API server are real and alone: no controller, scheduler or kubelet runs, so that every call is counted and the
world stands still between two changes. What those would write (pods and their states) the benchmark writes itself.
"""
