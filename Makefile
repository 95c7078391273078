# Every target sets itself up: the first run creates .venv and installs the locked dependencies into it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := .native
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
UV := $(BIN)/uv pip install -q --python $(BIN)/python --require-hashes
# The tests of what is compiled, and of what calls it.
NATIVE_ROOMS := broker compaction coordinator fuzz log log_manager node records replication simulation
NATIVE_TESTS := $(addprefix tests/,$(NATIVE_ROOMS)) $(wildcard tests/protocol/test_frames* tests/protocol/test_generated* \
	tests/protocol/test_message_round* tests/protocol/test_wire_prim*)
CONFORMANCE ?= ../shared/conformance

.PHONY: help setup run demo test proofs seeds check format native native-test native-seeds bench conformance programs lock generate wheel clean

help:  ## show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

# ---- set-up: the broker alone for `make run`, everything for the rest

$(VENV)/.broker: requirements/base.lock requirements/build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, found " + sys.version) if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the broker into $(VENV) ..."
	@$(PIP) install --require-hashes -r requirements/base.lock -r requirements/build.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src/moldau || true
	@touch $@

$(VENV)/.dev: requirements/dev.lock $(VENV)/.broker
	@echo "installing the development tools into $(VENV) ..."
	@$(PIP) install --require-hashes -r requirements/dev.lock
	@touch $@

$(VENV)/.spark: requirements/spark.lock requirements/spark-build.lock $(VENV)/.dev
	@echo "installing Spark into $(VENV) ..."
	@$(UV) --no-deps -r requirements/spark-build.lock
	@$(UV) --no-deps --no-build-isolation -r requirements/spark.lock
	@touch $@

# The wheel as users install it, in an environment of its own, its hot path compiled. (Never beside the sources:
# Python would load what is compiled in place of what somebody edits.)
$(NATIVE)/.installed: $(VENV)/.dev hatch_build.py pyproject.toml $(shell find src -name '*.py')
	@cc --version > /dev/null 2>&1 || { echo "a C compiler (cc) is needed to compile the hot path; Moldau runs without, small requests cost more CPU then"; exit 1; }
	@echo "compiling the hot path into $(NATIVE), about a minute and a half ..."
	@rm -rf build/native dist/native
	@MOLDAU_NATIVE=1 $(BIN)/python -m build --no-isolation --wheel -o dist/native . > /dev/null
	@test -x $(NATIVE)/bin/python || $(PYTHON) -m venv $(NATIVE)
	@$(NATIVE)/bin/python -m pip --disable-pip-version-check -q install --require-hashes -r requirements/base.lock
	@$(NATIVE)/bin/python -m pip --disable-pip-version-check -q install --no-deps --force-reinstall dist/native/*.whl
	@touch $@

native: $(NATIVE)/.installed  ## compile the hot path: the wheel as users install it, in .native

setup: $(VENV)/.dev $(VENV)/.spark  ## install everything into .venv

# ---- use

run: $(VENV)/.broker  ## start one node, and say what to try next
	@exec $(BIN)/moldau start --welcome

demo: $(VENV)/.spark  ## orders joined with customers on Spark, live, for half a minute
	@exec $(BIN)/python examples/demo.py

test: $(VENV)/.dev $(VENV)/.spark check  ## all checks and all tests
	@$(BIN)/python -m compileall -q src/moldau
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not long" $(ARGS)

proofs: $(VENV)/.dev $(VENV)/.spark  ## what is too long for every time: pipelines on Spark, killed and started again, and pages of docs/
	$(BIN)/python -m pytest -n 2 --dist loadfile -m long tests/cli tests/pipeline tests/spark tests/streams $(ARGS)

native-test: $(NATIVE)/.installed  ## the broker's tests again, on the compiled build
	MOLDAU_COMPILED=1 PYTHONPATH=$$(ls -d $(CURDIR)/$(NATIVE)/lib/python*/site-packages) \
		$(BIN)/python -m pytest -n 2 --dist loadfile -m "not long" $(NATIVE_TESTS) $(ARGS)

seeds: $(VENV)/.dev  ## a thousand simulated clusters under faults, each checked after every event
	$(BIN)/moldau simulate --seeds 1000 --quiet

native-seeds: $(NATIVE)/.installed  ## the same on the compiled build
	$(NATIVE)/bin/moldau simulate --seeds 1000 --quiet

check: $(VENV)/.dev  ## formatting, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev  ## format and mend what can be mended by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev  ## the same work on Moldau, as users install it, and on Apache Kafka, side by side
	@if $(MAKE) --no-print-directory native; then export MOLDAU_PROGRAM=$(CURDIR)/$(NATIVE)/bin/moldau; \
	else echo "so Moldau is measured as it is without"; fi; $(BIN)/python -m benchmarks $(ARGS)

conformance: $(VENV)/.dev  ## Apache Kafka's own published tests against this broker (ARGS="--suite smoke")
	@test -d $(CONFORMANCE) || { echo "the conformance harness is not at $(CONFORMANCE); set CONFORMANCE=<directory>"; exit 1; }
	$(BIN)/python -m tests.conformance.run --harness $(CONFORMANCE) $(ARGS)

programs: $(VENV)/.dev  ## Apache Kafka's Java programs at their full length: Streams and Connect, with killed processes
	$(BIN)/python -m pytest -m programs tests/interop/programs $(ARGS)

# ---- upkeep

lock: $(VENV)/.dev  ## resolve the dependencies anew and write the lock files
	$(BIN)/uv pip compile -q pyproject.toml --universal --generate-hashes --no-annotate --no-header --python-version 3.11 -o requirements/base.lock
	$(BIN)/uv pip compile -q --group build -c requirements/base.lock --universal --generate-hashes --no-annotate --no-header --python-version 3.11 -o requirements/build.lock
	$(BIN)/uv pip compile -q pyproject.toml --group dev -c requirements/build.lock --universal --generate-hashes --no-annotate --no-header --python-version 3.11 -o requirements/dev.lock
	$(BIN)/uv pip compile -q pyproject.toml --extra spark -c requirements/dev.lock --universal --generate-hashes --no-annotate --no-header --python-version 3.11 -o requirements/spark.lock
	$(BIN)/uv pip compile -q --group spark-build -c requirements/dev.lock --universal --generate-hashes --no-annotate --no-header --python-version 3.11 -o requirements/spark-build.lock

generate: $(VENV)/.dev  ## generate the protocol messages from Apache Kafka's specifications
	$(BIN)/python -m codegen

wheel: $(VENV)/.dev  ## build the wheel into dist/
	$(BIN)/python -m build --no-isolation --wheel -o dist .

clean:  ## remove everything that was made
	rm -rf $(VENV) $(NATIVE) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
