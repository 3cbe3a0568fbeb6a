# Everything a newcomer needs is `make demo` and `make test`; both set up what they use by themselves.
.DEFAULT_GOAL := help
SHELL := /bin/bash
export UV_PYTHON_DOWNLOADS ?= never
PYTHON := e2e/bootstrap.sh python
NODES ?= 1
BACKEND ?= auto
BENCH ?= gateway operator engine

help: ## show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

setup: ## install uv and the Python environment (.venv)
	@e2e/bootstrap.sh true

demo: setup ## a real cluster, one InferenceService, a completion prefilled in one pod and decoded in another
	@$(PYTHON) -m e2e.demo run --backend $(BACKEND)

clean-demo: setup ## take the demo's cluster down
	@$(PYTHON) -m e2e.demo clean

up: setup ## a local cluster (BACKEND=auto|context|kind|local, NODES=n)
	@$(PYTHON) -m e2e.cluster up --backend $(BACKEND) --nodes $(NODES)

down: setup ## take the local cluster down
	@$(PYTHON) -m e2e.cluster down

images: setup ## build the container images into the cache
	@$(PYTHON) -m e2e.images build

generate: setup ## write everything that is generated from the types: CRDs, charts, reference
	@$(PYTHON) -m e2e.generate

lint: setup ## formatting, lint, types, layers, generated files
	@$(PYTHON) -m e2e.checks

unit: setup ## unit, property, chart and kernel tests
	@$(PYTHON) -m e2e.checks --tests

test: setup ## what CI runs: lint, unit, property, chart, kernel and end-to-end tests
	@$(PYTHON) -m e2e.checks --tests --cluster

test-full: setup ## what `make test` leaves out: real vLLM on a cluster, kernels against vLLM, llmcompressor, kvpress, all techniques compared
	@$(PYTHON) -m e2e.checks --left-out

bench: setup ## gateway, operator and engine measured; writes docs/benchmarks (BENCH=gateway ARGS="--repeats 1 --no-write")
	@for part in $(BENCH); do PYTHONPATH=operator $(PYTHON) -m bench.$$part $(ARGS) || exit 1; done

evidence: setup ## what the simulator and the autoscaler are judged by; writes docs/evidence (ONLY=name prints one item's figures)
	@PYTHONPATH=operator $(PYTHON) -m bench.evidence $(ONLY) $(ARGS)

concepts: setup ## the plots of docs/concepts.md, made anew
	@PYTHONPATH=operator $(PYTHON) -m bench.concepts

compare-batching: setup ## static, dynamic, continuous and chunked batching side by side on a real model; writes docs/benchmarks
	@PYTHONPATH=operator $(PYTHON) -m bench.batching $(ARGS)

.PHONY: help setup demo clean-demo up down images generate lint unit test test-full bench evidence compare-batching
