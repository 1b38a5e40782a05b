# Every command sets itself up first: a fresh clone needs nothing but Python 3.11+.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
MODE ?= modular
VENV := .venv
BIN := $(VENV)/bin
LOCKED := --generate-hashes --universal --no-emit-index-url --no-annotate --no-header -q
SOURCES := service/bundlekeel dev evidence tests
SUITES := $(MAKE) --no-print-directory -f dev/suites.mk
# Two suites at a time; then the table of all. The output of a suite that computes is shown when it has ended.
IN_PARALLEL = mkdir -p .run; : > .run/suites; $(SUITES) -j2 -Otarget $(1) || code=$$?; cat .run/suites; exit $${code:-0}
# With this variable every process of a test or of the demo compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup packages quick check test extensible chaos quotas quota-figures spark chart kubernetes watch ui demo docs site bench load fuzz responses reaction decisions mutation nightly lock format clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

setup: packages ## Virtual environment with bundlekeel in .venv/bin, and the jars of the local cluster
	@$(BIN)/python -m dev.cluster jars

packages:
	@$(PYTHON) -m dev.setup dev

quick: packages ## Changed files alone: format, lint, types, nearest tests; at most a minute
	@$(BIN)/python -m dev.quick

check: packages ## The fast gate: format, lint, imports, types, sizes, generated files, unit and property tests
	@$(call IN_PARALLEL,check)

test: setup ## Everything that must pass, on real clusters; a suite that takes four times its budget fails
	@PULSAR=5.0 $(BIN)/python -m dev.cluster jars
	@$(call IN_PARALLEL,all)

extensible: setup ## The extensible load manager on real clusters: topics, ownership channel, transfers
	@$(SUITES) extensible

chaos: setup ## Leaders killed and frozen, stores and brokers that fail, on a real cluster
	@$(SUITES) chaos

quotas: setup ## Quota groups on a real cluster: a tenant offered four times its limit, a transfer, a broker killed, a leader killed amid its writes
	@$(SUITES) quotas

quota-figures: setup ## The quota suite with its long forms and ResourceGroups beside it, and the engine at full size; renews docs/reference/quotas.md (half an hour)
	@$(BIN)/python -m evidence.quota_figures

spark: setup ## Recalibration on a Spark standalone cluster; a real cluster's history recorded, refused, adopted
	@$(SUITES) spark history

chart: setup ## The Helm chart, image and compose file by real helm and kubeconform; the wheel as nobody on a read-only tree
	@$(SUITES) chart

kubernetes: setup ## The chart in a real Kubernetes API server: install, upgrade, rights, admission; each container's command (builds Kubernetes once, 10 minutes)
	@$(BIN)/python -m dev.kubernetes build
	@$(SUITES) kubernetes

watch: setup ## Dashboards, alerts and runbooks by promtool and a real Prometheus
	@$(SUITES) watch

ui: setup ## The web page in real Chromium, over fakes and over a real cluster (needs Node.js 20+ with npm)
	@$(SUITES) page-build page page-cluster

demo: ## Balance a real three-broker cluster, the leader killed half-way (MODE=modular or extensible; PULSAR=5.0; CLUSTER=docker)
	@$(PYTHON) -m dev.setup demo
	@[ "$(CLUSTER)" = docker ] || $(BIN)/python -m dev.cluster jars
	@$(BIN)/python -m dev.demo --mode $(MODE) $(ARGS)

docs: packages ## Write what is generated: docs/reference, example settings, config/openapi.json, chart files
	@$(BIN)/python -m dev.docs write
	@$(BIN)/python -m dev.chart write

site: packages ## The documentation as a site in .run/site; a broken link fails
	@$(BIN)/mkdocs build --strict

bench: setup ## Time planning and decoding beside Pulsar's own Java, and reading counters; renews two pages of docs/reference (25 minutes)
	@$(BIN)/python -m evidence.bench --write
	@$(BIN)/python -m evidence.counters_cost --write

load: packages ## 200 clients on the API of a sidecar over clusters in memory: the lease must hold (4 minutes)
	@$(BIN)/python -m evidence.load $(ARGS)

fuzz: setup ## 100,000 examples of each kind of foreign input: one error type, no step above 50 ms (ARGS="--examples N KIND")
	@$(BIN)/python -m evidence.fuzz $(ARGS)

responses: setup ## The largest response of each route: memory and silence of the processes that request it
	@$(BIN)/python -m evidence.responses $(ARGS)

reaction: setup ## Bundlekeel beside the native shedders on one step; renews the pages with its figures (hours; ARGS=--resume)
	@$(BIN)/python -m evidence.reaction --write $(ARGS)
	@$(BIN)/python -m dev.docs write

decisions: packages ## The decision rule in simulated worlds, next to Pulsar's AvgShedder; renews docs/reference/decision-figures.md (hours; ARGS=--resume)
	@$(BIN)/python -m evidence.decision_figures --write $(ARGS)

mutation: packages ## Change guard, planning, strategies, gate, execution, lease and auth by mutmut: do tests fail? (an hour; ARGS="--only guard")
	@$(BIN)/python -m evidence.mutation $(ARGS)

nightly: setup ## Long forms: stock statistics, many seeds (SHARD=1/4: the first of four parts; SEED=: as it was)
	@PULSAR=5.0 $(BIN)/python -m dev.cluster jars
	@$(BIN)/python -m dev.kubernetes build
	@$(SUITES) nightly-long nightly-laws kubernetes nightly-5.0

format: packages ## Format the sources
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

lock: packages ## Resolve the dependencies anew into requirements/*.lock (hashes, no registry address); needs uv
	uv pip compile pyproject.toml --extra topics --extra history --extra otel --extra spark --extra sql --group dev $(LOCKED) -o requirements/dev.lock
	uv pip compile pyproject.toml --extra topics --extra history $(LOCKED) -o requirements/runtime.lock
	uv pip compile pyproject.toml --extra topics --extra history --extra otel -c requirements/runtime.lock -c requirements/dev.lock $(LOCKED) -o requirements/otel.lock
	uv pip compile pyproject.toml --extra history --extra spark --extra sql -c requirements/dev.lock $(LOCKED) -o requirements/spark.lock
	uv pip compile pyproject.toml --extra topics --group demo -c requirements/dev.lock $(LOCKED) -o requirements/demo.lock
	uv pip compile --group mutation -c requirements/dev.lock $(LOCKED) -o requirements/mutation.lock
	for group in java go node audit s3; do uv pip compile --group $$group $(LOCKED) -o requirements/$$group.lock; done
	uv pip compile --group oxia --no-deps -c requirements/dev.lock $(LOCKED) -o requirements/oxia.lock
	printf 'hatchling==1.33.0\nsetuptools\nwheel\n' | uv pip compile - -c requirements/dev.lock $(LOCKED) -o requirements/build.lock

clean: ## Remove the virtual environment and caches (the Java cache outside the tree stays)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache reports
