# dpunion: `make demo` and `make test` do all set-up on a fresh machine with Python 3.11+ and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The versions of everything that development needs; with a Python that lacks one of them, the newest are installed.
LOCK := requirements-dev.lock
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test test-all test-threads java peers proofs coq lint format lock docs pictures notebook wheel publish reproduce audit torture benchmark benchmark-large benchmark-billion benchmark-candidates benchmark-comparison benchmark-counts benchmark-popular benchmark-schedule benchmark-spark benchmark-startup benchmark-windows clean

help:  ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

demo: $(VENV)/.run  ## Install, then make a private release from the bundled sample
	@$(BIN)/dpunion demo

test: lint  ## Install what tests need, check style, types and layers, and run the tests that need no server (5 minutes)
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m "not full"

test-all: $(VENV)/.dev java peers  ## Run the tests that `make test` left out: Spark, PostgreSQL, browser, docs, statistics, all faults
	@DPUNION_PEERS=$(abspath $(VENV)-peers) $(BIN)/python -m pytest -n 2 --dist loadfile -m full

test-threads: $(VENV)/.dev java  ## Run the tests of faults, leaks and agreement with one thread, and with four
	@for threads in 1 4; do $(BIN)/python -m pytest -n 2 --dist loadfile --threads $$threads tests/faults tests/parity || exit 1; done

peers: $(VENV)/.dev  # The libraries that docs/comparison.md has recipes for: tests skip those that do not install
	@$(BIN)/python benchmarks/comparison.py --install --peers $(abspath $(VENV)-peers)

java:  # Spark's tests need Java: found, or installed where that takes no questions
	@command -v java >/dev/null || ls /usr/lib/jvm/*/bin/java >/dev/null 2>&1 || \
	  ([ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "Installing Java for Spark ..." && \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq default-jre-headless) >/dev/null 2>&1 || \
	  echo "No Java: the tests on Spark will skip. Install Java 17 or newer (openjdk) and set JAVA_HOME."

proofs: coq  ## Check the proofs with Coq, and print what each cited theorem says and rests on (5 minutes)
	@$(PYTHON) tools/check_proofs.py

coq:  # The proofs need Coq and two libraries: found, or installed where that takes no questions
	@needed="$$($(PYTHON) tools/check_proofs.py --needs)"; [ -z "$$needed" ] || \
	  ([ "$$(id -u)" = 0 ] && command -v apt-get && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$needed) >/dev/null 2>&1 || \
	  echo "No Coq: install $$needed."

lint: $(VENV)/.dev  ## Check style, types and layers
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/codespell

format: $(VENV)/.dev  ## Format the code
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

lock:  ## Write requirements-dev.lock again, with the newest versions that pyproject.toml allows (2 minutes)
	@$(PYTHON) -m venv --clear $(VENV)-lock
	@$(VENV)-lock/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]" --editable ./lab
	@(echo "# Versions for development, written by \`make lock\`."; $(VENV)-lock/bin/python -m pip freeze --exclude-editable) > requirements-dev.lock
	@rm -rf $(VENV)-lock

docs: $(VENV)/.docs  ## Build the documentation site into docs/_build/html, without Spark and test tools (1 minute)
	@$(BIN)/python -m sphinx -W --keep-going -E -q -b html -d docs/_build/doctrees docs docs/_build/html
	@echo "Built docs/_build/html/index.html"

pictures: $(VENV)/.dev  ## Take the pictures of README and docs again; needs chromium and its driver
	@$(BIN)/python tools/make_pictures.py

notebook: $(VENV)/.dev  ## Run the notebook of the documentation again, and write it into examples/ with its outputs (1 minute)
	@$(BIN)/python tools/make_notebook.py

reproduce: $(VENV)/.dev  ## Run the papers' evaluation again beside their tables, then print sizes on every data set
	@$(BIN)/dpunion lab reproduce
	@$(BIN)/python benchmarks/release_sizes.py

wheel: $(VENV)/.dev  ## Build wheel and sdist into dist/, and try the wheel in a clean environment (1 minute)
	@$(BIN)/python tools/check_wheel.py

publish: wheel  ## Publish what `make wheel` has built and tried, and tag it (docs/releasing.md)
	@$(BIN)/python tools/publish.py

audit: $(VENV)/.dev  ## Search policies for flaws, audit releases, run mutants (about half an hour)
	@$(BIN)/dpunion audit policy research --expect-violation
	@$(BIN)/dpunion audit policy shipped --seconds 120
	@$(BIN)/dpunion audit release --trials 100000 --mutants
	@$(BIN)/dpunion audit release --trials 100000 --counts
	@DPUNION_AUDIT_SCALE=16 $(BIN)/python -m pytest tests/statistical/test_funnel_novelty.py

torture: $(VENV)/.dev java  ## 2,000 interrupts, 600 kills, half of them after the charge, and 10,000 damaged inputs (30 minutes)
	@$(BIN)/python tests/faults/torture.py $(TORTURE)

benchmark: $(VENV)/.dev  ## Time a release against DuckDB and polars on 8.6M pairs
	@$(BIN)/python benchmarks/speed.py

benchmark-large: $(VENV)/.dev  ## The same, with 77M pairs too, grouped and shuffled, and with texts
	@$(BIN)/python benchmarks/speed.py
	@$(BIN)/python benchmarks/speed.py --large
	@$(BIN)/python benchmarks/speed.py --texts

benchmark-billion: $(VENV)/.dev  ## One billion pairs, dpunion alone
	@$(BIN)/python benchmarks/speed.py --billion

benchmark-candidates: $(VENV)/.dev  ## What a public list of candidates adds, on every data set and on random worlds, and its time
	@$(BIN)/python benchmarks/candidates.py
	@$(BIN)/dpunion lab worlds --of candidates --count 50
	@$(BIN)/python benchmarks/speed.py --lists

benchmark-comparison: $(VENV)/.dev  ## Items released by dpunion, OpenDP, PipelineDP, Tumult and two papers' algorithms, and a picture (1 hour)
	@$(BIN)/python benchmarks/comparison.py --peers $(abspath $(VENV)-peers)

benchmark-counts: $(VENV)/.dev  ## Counts: errors and intervals beside equal weights, a peer's, and what they cost in time
	@$(BIN)/python benchmarks/counts.py
	@$(BIN)/python benchmarks/counts_speed.py
	@$(BIN)/python benchmarks/counts_peer.py

benchmark-popular: $(VENV)/.dev  ## How often Funnel misses an item that many people hold, and the bound on it
	@$(BIN)/python benchmarks/popular_items.py

benchmark-schedule: $(VENV)/.dev  ## Jobs of 12 and 52 weeks: each week alone, an even split, and a schedule (20 minutes)
	@$(BIN)/python benchmarks/schedule.py

benchmark-windows: $(VENV)/.dev  ## A second window in which items are gone: the first list as candidates, or set aside
	@$(BIN)/python benchmarks/windows.py --trials 10

benchmark-startup: $(VENV)/.dev  ## What each trick is worth that makes the first release start sooner
	@$(BIN)/python benchmarks/startup.py

benchmark-spark: $(VENV)/.dev  ## On Spark: time against its own count on 8.6M and 77M pairs, and what sharding costs
	@$(BIN)/python benchmarks/spark_speed.py
	@$(BIN)/python benchmarks/spark_shards.py --runs 3

clean:  ## Remove the environment and caches
	rm -rf $(VENV) $(VENV)-peers dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache docs/_build

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || (echo "dpunion needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1)
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml | $(VENV)/bin/python
	@echo "Installing dpunion into $(VENV) ..."
	@$(INSTALL) --editable . && touch $@

$(VENV)/.dev: pyproject.toml lab/pyproject.toml $(LOCK) | $(VENV)/bin/python
	@echo "Installing dpunion and its test tools into $(VENV) ..."
	@$(INSTALL) --constraint $(LOCK) --editable ".[dev]" --editable ./lab || (echo "$(LOCK) does not fit this Python: installing the newest versions ..."; $(INSTALL) --editable ".[dev]" --editable ./lab)
	@touch $@ $(VENV)/.run

$(VENV)/.docs: pyproject.toml lab/pyproject.toml $(LOCK) | $(VENV)/bin/python
	@echo "Installing dpunion and what the documentation needs into $(VENV) ..."
	@$(INSTALL) --constraint $(LOCK) --editable ".[docs]" --editable ./lab || (echo "$(LOCK) does not fit this Python: installing the newest versions ..."; $(INSTALL) --editable ".[docs]" --editable ./lab)
	@touch $@ $(VENV)/.run
