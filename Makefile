# One door to everything. `make` prints the targets. Works with make 3.81 and any POSIX shell.

PY := .venv/bin/python
# Some shells set it. Then each of the hundreds of processes of the tests compiles onceflow anew.
unexport PYTHONDONTWRITEBYTECODE
# Three at a time on two cores: many tests wait for a broker, a JVM or a process half of the time. A fourth makes
# the suite no quicker, and each process slower than those expect that talk to it. A file stays on one worker,
# with its broker; files begin in the order of tests/conftest.py, the longest first.
PYTEST := $(PY) -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder

# Goes before the installed PySpark in the path; all else is of the environment.
OTHER_SPARK := $(CURDIR)/build/pyspark-$(SPARK)

.PHONY: help setup demo test check fast sim mutants integration soak bench profile docs docs-site wheel

help:  ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: .venv/.ready  ## .venv with onceflow in it, editable, and the tools

.venv/.ready: pyproject.toml scripts/setup.sh
	@sh scripts/check-java.sh
	@sh scripts/setup.sh

demo: setup  ## the main job on a real Kafka, killed three times, audited
	@sh scripts/check-java.sh
	@$(PY) scripts/demo.py $(ARGS)

test: setup  ## the whole suite: unit, property, conformance, simulation, real Kafka, real Spark; says what took longest
	@sh scripts/check-java.sh
	@.venv/bin/onceflow prepare  # dozens of local Sparks start below
	$(PYTEST) --durations=40 --durations-min=2 -m "not soak and not docker" $(ARGS)

check: setup  ## ruff, formatting, spelling, mypy, pyright, layers
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m codespell_lib *.md docs docker Makefile scripts onceflow/cli onceflow/structured_streaming onceflow/testing runtime connectors sinks examples benchmarks
	$(PY) -m mypy
	$(PY) -m pyright --pythonpath $(PY)
	.venv/bin/lint-imports

fast: setup  ## the inner loop: all tests that need no broker and no JVM
	$(PYTEST) -m "not kafka and not spark and not slow and not soak and not docker" tests $(ARGS)

sim: setup  ## simulated runs: SEED=511 for one with its trace, N=10000 for many
	@$(PY) -m onceflow.runtime.testing.simulate $(if $(SEED),--seed $(SEED)) $(if $(N),--seeds $(N))

mutants: setup  ## each deliberate mutant and the test that kills it
	@$(PY) -m onceflow.runtime.testing.mutants $(ARGS)

integration: setup  ## tests/integration, containers too; K=kafka, K=spark or K=docker for those only; SPARK=4.2 for that PySpark
	@sh scripts/check-java.sh
	@$(if $(SPARK),[ -d $(OTHER_SPARK) ] || $(PY) -m pip install --quiet --target $(OTHER_SPARK) 'pyspark==$(SPARK).*')
	$(if $(SPARK),PYTHONPATH=$(OTHER_SPARK)) $(PYTEST) tests/integration -m "$(if $(K),$(K) and )not soak" $(ARGS)

soak: setup  ## long kills and load
	@sh scripts/check-java.sh
	$(PYTEST) -m soak $(ARGS)

bench: setup  ## side by side with the peers: PEERS=flink,spark RUNS=3 RECORDS=4000000 WORKLOAD=main
	@sh scripts/check-java.sh
	@$(PY) -m pip install --quiet --group bench
	@$(PY) benchmarks/compare.py $(if $(PEERS),--peers $(PEERS)) $(if $(RUNS),--runs $(RUNS)) \
		$(if $(RECORDS),--records $(RECORDS)) $(if $(WORKLOAD),--workload $(WORKLOAD)) $(ARGS)

profile: setup  ## where the main job's time goes
	@sh scripts/check-java.sh
	@$(PY) -m pip install --quiet --group bench
	@$(PY) benchmarks/main_job.py --profile $(ARGS)

docs: setup  ## run every snippet of the documentation
	$(PYTEST) tests/test_docs.py $(ARGS)

docs-site: setup  ## the documents as a site, in build/site; a link or a page that is missing fails it
	$(PY) scripts/write_documents.py
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build
	@echo "build/site/index.html"

wheel: setup  ## build the wheel, install it in a clean environment, import it, compare it with the tree
	$(PY) -m pip wheel -q --no-deps --no-build-isolation --wheel-dir dist .
	$(PYTEST) tests/test_wheel.py $(ARGS)
