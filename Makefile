# Heddle: everything a user or a developer runs. `make` alone lists it.
#
# Needs on the machine: python3 (3.11 to 3.13), make and Java 17. Everything else goes into .venv (Python packages,
# with a PostgreSQL server among them), .cache (Delta's JVM jar) and var (tables, Airflow, logs); `make clean`
# removes all three. Works as an ordinary user and as root.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
UV_VERSION := 0.13.8
PIP_AUDIT_VERSION := 2.10.1
# Trust the certificates the machine trusts (company proxies), as pip does.
UV := UV_SYSTEM_CERTS=1 $(VENV)/bin/uv

export HEDDLE_HOME := $(CURDIR)
export AIRFLOW_HOME := $(CURDIR)/var/airflow
export SPARK_LOCAL_IP ?= 127.0.0.1
export GX_ANALYTICS_ENABLED := false

PACKAGES := $(VENV)/.packages
PROJECT := $(VENV)/.project
JARS := .cache/.jars
STORE := .cache/.s3proxy
KERNELS := .cache/.kernels
KAFKA := .cache/.kafka
BROKER := .cache/.kafka-broker

.PHONY: help setup kafka versitygw azurite demo up down status test test-slow test-wheel test-all fuzz chaos soak audit-dependencies bench peers bench-small bench-year bench-scale bench-latency profile screenshots lint format docs clean

help: ## this list
	@printf 'Heddle: shared sliding-window aggregates on Spark and Airflow\n\n'
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | \
	  while IFS=$$'\t' read -r name what; do printf '  make %-11s %s\n' "$$name" "$$what"; done
	@printf '\nThe command line is %s/bin/heddle (try --help).\n' '$(VENV)'

setup: $(PROJECT) $(JARS) $(STORE) $(KERNELS) ## .venv from pinned dependencies, JVM jars, kernels (once)

$(VENV)/.uv-$(UV_VERSION):
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || \
	  { echo 'Heddle needs Python 3.11, 3.12 or 3.13: make setup PYTHON=/path/to/python3.11' >&2; exit 2; }
	@java -version >/dev/null 2>&1 || { echo 'Heddle needs Java 17 (java on the PATH)' >&2; exit 2; }
	@echo '==> virtual environment in $(VENV)'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check 'uv==$(UV_VERSION)'
	@touch $@

$(PACKAGES): pyproject.toml constraints.txt $(VENV)/.uv-$(UV_VERSION)
	@echo '==> Python packages (about a gigabyte the first time)'
	@$(UV) pip install --python $(PY) --requirements pyproject.toml --all-extras --constraints constraints.txt \
	  --build-constraints constraints.txt
	@touch $@

# The build backend is in .venv already: no isolated build, nothing fetched.
$(PROJECT): pyproject.toml $(PACKAGES)
	@$(UV) pip install --python $(PY) --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(JARS): $(PROJECT) spark_jobs/engine/session.py
	@echo "==> Delta's JVM jar"
	@$(VENV)/bin/heddle jars --fetch
	@mkdir -p .cache && touch $@

# The S3 server of `make demo DEMO=--s3` and of the tests.
$(STORE): $(PROJECT) heddle/local/object_store.py
	@echo '==> S3 server for the demo and the tests'
	@$(PY) -m heddle.local.object_store --fetch-jars
	@mkdir -p .cache && touch $@

# Changed ones are compiled again where they are used.
$(KERNELS): | $(PROJECT)
	@$(PY) -m optimizer.plan.compiling
	@$(PY) -m spark_jobs.pipeline.run.compiling
	@mkdir -p .cache && touch $@

# Not in setup: 125 MB that only `heddle land` needs, and a broker that only its tests do.
kafka: setup $(KAFKA) ## JVM jars for `heddle land` (once)

$(KAFKA): $(PROJECT) spark_jobs/streams/landing/kafka.py
	@echo "==> Kafka's JVM jars"
	@$(VENV)/bin/heddle jars --fetch --kafka
	@mkdir -p .cache && touch $@

$(BROKER): $(KAFKA) tests/kafka/broker.py
	@echo '==> Kafka broker for the tests'
	@$(PY) -m tests.kafka.broker --fetch-jars
	@mkdir -p .cache && touch $@

VERSITYGW := github.com/versity/versitygw/cmd/versitygw@v1.8.0

versitygw: ## a second S3 server for `make test-all`, built by Go (once)
	@test -x .cache/versitygw/versitygw || GOBIN=$(CURDIR)/.cache/versitygw go install $(VERSITYGW)

AZURITE := azurite@3.35.0

azurite: ## Azure's blobs on loopback for `make test-all`, fetched by npm (once)
	@test -e .cache/azurite/node_modules/azurite || npm install --silent --no-save --prefix .cache/azurite $(AZURITE)

demo: setup ## a year of real flights through Airflow and Spark, with a summary (exit 0)
	@$(PY) -m heddle.local.demo $(DEMO)

up: setup ## start Airflow and its PostgreSQL, and leave them running
	@$(PY) -m heddle.local.servers up

down: ## stop what `make up` or `make demo` started, and nothing else
	@test ! -x $(PY) || $(PY) -m heddle.local.servers down

status: setup ## is Airflow running, and where
	@$(PY) -m heddle.local.servers status

# Two processes, each with a Spark session of its own (up to 5 GB), a file of tests at a time: what a file builds once
# is built once. Files come in the order of tests/conftest.py, the dear ones first; those of tests/stores and of
# tests/dags go to one process each, which starts the S3 server or Airflow.
PARALLEL ?= --numprocesses 2 --dist loadfile --no-loadscope-reorder

# HEDDLE_TESTS: how much is tried, and whether tests that could do without Spark use it (tests/sizes.py).
test: setup ## unit and Spark tests (fast ones; PYTEST='-k name' narrows, PARALLEL= in one process)
	@HEDDLE_TESTS=quick $(PY) -m pytest $(PARALLEL) $(PYTEST)

test-slow: setup $(BROKER) .venv-peers/dbt/.packages ## more of the same, and through Spark what `make test` runs without (for CI)
	@HEDDLE_TESTS=spark $(PY) -m pytest $(PARALLEL) -m '(longer or reduced or engine) and not slow' $(PYTEST)

test-wheel: setup ## the tests of `make test` against the wheel, in a new environment (PYTEST='tests/optimizer' for some)
	@$(PY) -m tests.building.environments $(PYTEST)

test-all: setup $(BROKER) ## everything, with many more examples, drawn at random; also the tests that are minutes long
	@HEDDLE_TESTS=thorough $(PY) -m pytest -m '' $(PYTEST)

fuzz: setup ## hostile queries by the hundred thousand (FUZZ=1000000 for more, FUZZ_SEED=n for others)
	@HEDDLE_FUZZ=$(or $(FUZZ),100000) HEDDLE_FUZZ_SEED=$(or $(FUZZ_SEED),100000) $(PY) -m pytest tests/hostile/test_fuzz.py

chaos: setup ## rounds of faults at every failpoint, in long histories (CHAOS=rounds); counts what it played
	@HEDDLE_TESTS=spark HEDDLE_CHAOS=$(or $(CHAOS),12) $(PY) -m pytest --numprocesses 2 --dist worksteal -m slow tests/chaos $(PYTEST)

soak: setup ## steady live runs with a fault every 30 s; does anything grow? (SOAK=minutes, default 20; SOAK_DAYS=n of data instead, SOAK_HOURS=n a tick; SOAK_SEED=n)
	@$(PY) -m tests.soak.soak --minutes $(or $(SOAK),20) --days $(or $(SOAK_DAYS),0) --hours $(or $(SOAK_HOURS),3) --seed $(or $(SOAK_SEED),1)

# pip-audit asks the index for the advisories of every pin; --strict: a package that it cannot ask for is a failure.
audit-dependencies: setup ## dependencies: pinned, asked for, whole (AUDIT=online: and without known vulnerabilities)
	@$(PY) -m pytest -q tests/test_dependencies.py
ifeq ($(AUDIT),online)
	@$(UV) tool run --from 'pip-audit==$(PIP_AUDIT_VERSION)' pip-audit --requirement constraints.txt \
	  --no-deps --disable-pip --strict
else
	@echo 'Not asked: whether a pinned version has a known vulnerability (make audit-dependencies AUDIT=online asks the index)'
endif

bench: setup ## the shared pipeline beside Spark and five engines, as JSON and charts in var/bench (BENCH='--help')
	@$(PY) -m tests.benchmarks.sharing --json var/bench/sharing.json --charts var/bench $(BENCH)

# Environments of their own: what a peer needs decides nothing of what Heddle runs with. `make bench` skips those missing.
PEERS := $(filter-out dbt,$(patsubst tests/benchmarks/environments/%.txt,%,$(wildcard tests/benchmarks/environments/*.txt)))

peers: setup $(PEERS:%=.venv-peers/%/.packages) ## ClickHouse, DataFusion and Flink for `make bench` (2 GB, once)
	@$(PY) -m tests.benchmarks.workers --fetch-jars

.venv-peers/%/.packages: tests/benchmarks/environments/%.txt
	@echo '==> $* in an environment of its own'
	@$(PYTHON) -m venv .venv-peers/$*
	@.venv-peers/$*/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

bench-small: setup ## what a small run costs, beside its goals (BENCH='--beside FOLDER')
	@$(PY) -m tests.benchmarks.small $(BENCH)

bench-year: setup ## what a year of refreshes makes of a run (BENCH='--days N')
	@$(PY) -m tests.benchmarks.year $(BENCH)

bench-scale: setup ## 10 million, 100 million and a billion events, streamed by the day (BENCH='--days 1 10')
	@$(PY) -m tests.benchmarks.scale --json var/bench/scale.json $(BENCH)

bench-latency: setup ## from the moment a refresh is due to its answers, beside the goals (BENCH='--refreshes N')
	@$(PY) -m tests.benchmarks.latency $(BENCH)

profile: setup ## what each CPU second of a cold run is
	@$(PY) -m tests.benchmarks.small --profile

screenshots: setup ## every page of the demo's warehouse, wide and narrow, light and dark, into var/screenshots (needs chromium)
	@$(PY) -m tests.screenshots --documents

lint: setup ## ruff (check and format), mypy, and which folder may import which
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports

format: setup ## let ruff format and sort imports
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

# An environment of its own: what the builder needs decides nothing of what Spark and Airflow run with.
DOCS_VENV ?= .venv-docs

$(DOCS_VENV)/.packages: requirements-docs.txt
	@$(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements-docs.txt
	@touch $@

docs: $(DOCS_VENV)/.packages ## the site of docs/ into var/site, no link broken (the first time fetches its builder)
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs --quiet build --strict
	@echo 'var/site/index.html'

clean: down ## remove .venv, .venv-docs, .venv-peers, .cache and var
	rm -rf $(VENV) $(DOCS_VENV) .venv-peers .cache var heddle.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
