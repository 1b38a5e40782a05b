# The test suites, one target each; the Makefile runs them after its setup. `make -f dev/suites.mk chaos` runs one alone.
# `all` runs two at a time (-j2). Suites on clusters mostly wait: they run one at a time, next to suites that compute.
SHELL := /bin/bash
BIN := .venv/bin
SOURCES := service/bundlekeel dev evidence tests

# The order of tests. With the number in the output an order in which a test failed can be repeated.
ifeq ($(strip $(SEED)),)
override SEED := $(shell echo $$RANDOM)
$(info order of tests: SEED=$(SEED))
endif
export SEED

# $(call pytest,NAME,BUDGET,ARGUMENTS,OPTIONS OF dev.suite). Tests on real servers or processes get a second attempt (AGAIN).
pytest = $(BIN)/python -m dev.suite $(4) $(1) $(2) $(BIN)/python -m pytest -q --durations=8 --durations-min=5 \
	--randomly-seed=$(SEED) -o cache_dir=.pytest_cache/$(1) $(3)
AGAIN := --again
DAY := -m "not nightly"
# Next to another suite a test can take several times as long.
PATIENT := --timeout 900
BOTH := -n 2 --dist worksteal
# Other examples than by day, where each run draws the same ones.
NIGHT = --hypothesis-profile random --hypothesis-seed=$(SEED) $(if $(SHARD),--shard $(SHARD))

CLUSTERS := modular extensible chaos quotas demo
# The same on Pulsar 5.0: one by day, all and their long forms at night.
NEWER := $(addsuffix -5.0,$(CLUSTERS) long)
# Short ones last, so that two end at nearly the same time.
COMPUTING := unit laws page kubernetes spark parity simulation watch chart-files chart

.PHONY: all check one-by-one gate long $(CLUSTERS) $(NEWER) nightly-5.0 $(COMPUTING) history page-build page-cluster nightly-long nightly-laws

all: one-by-one $(COMPUTING)

check: gate unit laws chart-files

one-by-one:
	+@$(MAKE) --no-print-directory -j1 -f dev/suites.mk gate $(CLUSTERS) demo-5.0

gate:
	@$(BIN)/ruff format --check -q $(SOURCES)
	@$(BIN)/ruff check -q $(SOURCES)
	@$(BIN)/lint-imports
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/python -m dev.sizes
	@$(BIN)/python -m dev.docs check
	@$(BIN)/deptry service/bundlekeel
	@$(BIN)/python -m pytest -q tests/watch/test_names.py
	@# Not quietly: --quiet hides warnings from --strict, which then passes over a broken link.
	@$(BIN)/mkdocs build --strict

modular:
	@$(call pytest,$@,15,$(DAY) tests/integration,$(AGAIN))

extensible:
	@$(call pytest,$@,5,$(DAY) tests/extensible,$(AGAIN))

chaos:
	@$(call pytest,$@,10,$(DAY) tests/chaos,$(AGAIN))

quotas:
	@$(call pytest,$@,5,$(DAY) -s tests/quotas,$(AGAIN))

demo:
	@$(call pytest,$@,3,$(DAY) tests/e2e,$(AGAIN))

# On 4.2 these are part of `nightly-long`.
long:
	@$(call pytest,$@,120,$(NIGHT) -m nightly tests/integration tests/extensible tests/chaos tests/quotas tests/e2e)

$(NEWER): %-5.0:
	@PULSAR=5.0 $(MAKE) --no-print-directory -f dev/suites.mk $*

nightly-5.0:
	+@$(MAKE) --no-print-directory -j1 -f dev/suites.mk $(NEWER)

unit:
	@$(call pytest,$@,19,$(BOTH) $(PATIENT) $(DAY) tests/unit,$(AGAIN))

laws:
	@$(call pytest,$@,8,$(PATIENT) $(DAY) tests/property)

# A Java program that is compiled here runs Pulsar's own classes.
parity:
	@$(call pytest,$@,8,$(PATIENT) $(DAY) tests/parity,--needs "dev.java compiler")

simulation:
	@$(call pytest,$@,11,$(PATIENT) $(DAY) tests/simulation tests/field)

spark:
	@$(call pytest,$@,12,$(PATIENT) $(DAY) tests/spark,$(AGAIN))

# A real cluster's history, refused and adopted: three minutes of it are recorded.
history:
	@$(call pytest,$@,7,-m cluster tests/spark,$(AGAIN))

watch:
	@$(call pytest,$@,6,$(PATIENT) $(DAY) tests/watch,$(AGAIN) --needs dev.tools_prometheus)

# Not part of the gate: a fresh machine builds helm first (four minutes).
chart-files:
	@$(BIN)/python -m dev.suite --needs "dev.gotools helm" $@ 4 $(BIN)/python -m dev.chart check

chart:
	@$(call pytest,$@,8,$(PATIENT) $(DAY) tests/chart,--needs dev.gotools)

# Left out, also on CI, until `make kubernetes` has built Kubernetes once, which takes ten minutes.
kubernetes:
	@$(call pytest,$@,20,$(PATIENT) $(DAY) tests/kubernetes,$(AGAIN) --optional "dev.kubernetes cached" --needs "dev.gotools helm")

page:
	@$(call pytest,$@,13,$(PATIENT) -m "not nightly and not cluster" tests/ui,$(AGAIN) --needs dev.tools_chromium --needs "dev.ui install")

page-build:
	@$(BIN)/python -m dev.suite $@ 2 $(BIN)/python -m dev.ui check

page-cluster:
	@$(call pytest,$@,4,-m cluster tests/ui,$(AGAIN))

nightly-long:
	@$(call pytest,$@,270,$(NIGHT) -m nightly tests)

nightly-laws:
	@$(call pytest,$@,270,$(BOTH) $(NIGHT) $(DAY) tests/property tests/unit)
