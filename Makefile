# Two commands matter: `make demo` and `make test`. Each sets itself up on a fresh machine.
PYTHON ?= python3
GPU_PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Failures are told at once: a run that is cut off has said what it found.
TELLS := --instafail --durations=15
# QUICK=1 leaves out what is marked `thorough` (pyproject.toml), and parts that only it needs.
CHOSEN := $(if $(QUICK),-m "not thorough")
QUICK_PARTS := kafka flink routers kubernetes alertmanager
QUICK_ENGINES := torch trl vllm llamacpp
ENGINES ?= $(if $(QUICK),$(QUICK_ENGINES))

.DEFAULT_GOAL := help
.PHONY: help demo test lint types unit kafka parts deploy-parts engines test-system test-faults test-deploy test-engines example-proxy example-grpo example-trl example-shadow \
	test-gpu bench bench-core bench-system bench-statistics bench-engines bench-gpu proto clean

help:  ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "paritas needs Python 3.11 or newer; say make PYTHON=python3.11 …"; exit 1; }
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[all]' --group dev
	@touch $(STAMP)

demo: $(STAMP)  ## real recordings, a fault, the escalation a subscriber receives (under a minute)
	@$(BIN)/paritas demo

test: lint types unit  ## everything that needs nothing but Python (minutes)

lint: $(STAMP)  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy --strict
	$(BIN)/mypy

unit: $(STAMP)  ## tests, doctests and documentation examples, in random order on both cores
	$(BIN)/pytest -n auto --ignore=tests/system --ignore=tests/engines --ignore=tests/gpu --ignore=tests/deploy tests src/paritas README.md docs

kafka: $(STAMP)  ## a Kafka broker for development (Java and Maven; in the foreground)
	deploy/kafka/kafka.sh run

parts: $(STAMP)  ## fetch and build the real parts into .cache, once (Kafka, Flink, a collector, Jaeger, routers, a Kubernetes API server, Alertmanager)
	@$(BIN)/python tests/system/parts.py $(if $(QUICK),$(QUICK_PARTS))

test-system: $(STAMP) parts  ## against real parts; what cannot be had here is skipped and named; QUICK=1 as .ci/run does
	$(BIN)/pytest -rs $(TELLS) $(CHOSEN) tests/system --ignore=tests/system/test_flink_live.py

test-faults: $(STAMP) parts  ## agent, detector and broker killed, cut off and starved; verdicts must not change
	PARITAS_FAULT_ROUNDS=56 PARITAS_FAULT_OUTAGE_S=120 $(BIN)/pytest -rs $(TELLS) tests/system/test_agent_faults.py \
		tests/system/test_agent_disk_full.py tests/system/test_detector_faults.py tests/system/test_flink_live.py

deploy-parts: $(STAMP)  ## fetch and build what test-deploy needs, once (Helm, linters, Prometheus, Argo's metric, buildah and podman)
	@$(BIN)/python tests/system/parts.py kafka kubernetes alertmanager
	@$(BIN)/python tests/deploy/parts.py

test-deploy: $(STAMP) deploy-parts  ## chart, policy and operator against a real Kubernetes API server; image really built and run; stack, rules, dashboards; QUICK=1 too
	$(BIN)/pytest -rs $(TELLS) $(CHOSEN) tests/deploy

engines: $(STAMP)  ## torch, TRL, vLLM for CPU and llama.cpp in one environment of their own (8 GB, once)
	@$(BIN)/python tests/engines/engines_setup.py $(ENGINES)

test-engines: $(STAMP)  ## against real PyTorch, TRL, vLLM and llama.cpp on the CPU; ENGINES=… names fewer parts; QUICK=1 too
	@if $(BIN)/python tests/engines/engines_setup.py $(ENGINES); \
	then OMP_NUM_THREADS=1 .cache/engines-venv/bin/python -m pytest --confcutdir=tests/engines -rs \
		-o faulthandler_timeout=600 $(TELLS) $(CHOSEN) -n 2 --dist loadfile $(if $(FILES),$(FILES),tests/engines); \
	else echo "skipped: tests/engines, for the reason above"; fi

MODEL = $$(PYTHONPATH=tests .cache/engines-venv/bin/python -c 'from engines.real_model import model_dir; print(model_dir())')

example-proxy: engines  ## vLLM watched through the proxy; FAULT=temperature, top-p or stale
	.cache/engines-venv/bin/python examples/proxy/serving.py --model $(MODEL) $(if $(FAULT),--fault $(FAULT))

example-grpo: engines  ## GRPO in one file, vLLM samples and PyTorch trains; FAULT=stale or lost
	.cache/engines-venv/bin/python examples/grpo/grpo.py --model $(MODEL) $(if $(FAULT),--fault $(FAULT))

example-trl: engines  ## the same with TRL; FAULT=stale
	.cache/engines-venv/bin/python examples/trl/train.py --model $(MODEL) $(if $(FAULT),--fault $(FAULT))

example-shadow: $(STAMP)  ## a candidate behind a real Envoy: shadow, canary, full; FAULT=stale or silent
	@$(BIN)/python tests/system/parts.py routers
	$(BIN)/python examples/shadow/shadow.py --envoy .cache/routers-venv/bin/envoy $(if $(FAULT),--fault $(FAULT))

test-gpu:  ## the capture on a CUDA device; GPU_PYTHON needs torch, triton, pytest and numpy
	@if $(GPU_PYTHON) -c 'import numpy, pytest, torch' 2>/dev/null; \
	then PYTHONPATH=src:tests $(GPU_PYTHON) -m pytest -c tests/gpu/pytest.ini -rs tests/gpu; \
	else echo "skipped: $(GPU_PYTHON) has not all of torch, numpy and pytest; say make GPU_PYTHON=… test-gpu"; fi

bench-gpu:  ## cost of the capture beside a plain read and log_softmax, on a CUDA device
	PYTHONPATH=src $(GPU_PYTHON) benchmarks/gpu_capture.py

bench: bench-core bench-system  ## speed and statistics, each beside a peer in the same run

bench-core: $(STAMP)  ## those that need nothing but Python
	$(BIN)/python benchmarks/wire_speed.py
	$(BIN)/python benchmarks/sdk_encodings.py
	$(BIN)/python benchmarks/emitter_speed.py
	$(BIN)/python benchmarks/proxy_speed.py
	$(BIN)/python benchmarks/evidence_speed.py
	$(BIN)/python benchmarks/delay.py
	$(BIN)/python benchmarks/false_alarms.py

bench-system: $(STAMP) parts  ## the agent beside the Go collector, one process beside Flink
	$(BIN)/python benchmarks/agent_vs_collector.py
	$(BIN)/python benchmarks/flink_speed.py
	$(BIN)/python benchmarks/route_latency.py
	$(BIN)/python benchmarks/fanout.py

bench-statistics: $(STAMP)  ## false alarms, delay beside peers, recordings and faults, with seeds (minutes)
	$(BIN)/python benchmarks/statistics_all.py
	$(BIN)/python benchmarks/diagnosis_accuracy.py

bench-engines: engines  ## the capture in a trainer, beside log_softmax and gather
	.cache/engines-venv/bin/python benchmarks/capture_speed.py
	OMP_NUM_THREADS=1 .cache/engines-venv/bin/python benchmarks/vllm_overhead.py

proto:  ## write the code of proto/v1/*.proto with the pinned generator
	proto/generate.sh

clean:  ## remove what the targets made
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache dist
