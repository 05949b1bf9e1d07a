# fedskew: every target sets up what it needs. `make help` lists them.
VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FLOWER := .venv-flower/bin
FLOWER_READY := .venv-flower/.ready-fedskew
DOCS := .venv-docs/bin
DOCS_READY := .venv-docs/.ready
PACKAGE_READY := .venv-package/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-flower check format bench bench-flower clean
.PHONY: evidence-pages bank mutants fuzz drill docs package

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / {printf "  make %-23s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

setup: $(READY) ## make the virtual environment and install everything

# Local training is made equal, so that only the methods differ.
DEMO := fedavg fedlecc bacsa clust_psi_pfl afls balanced_chains
DEMO_SET := partition.alpha=0.1 run.rounds=40 local.epochs=1 local.batch=16 local.lr=0.1 local.momentum=0 local.weight_decay=0 local.optimizer=sgd

demo: $(READY) ## compare methods on a skewed federation of digits, print the table, write the report (under 90 s)
	@rm -rf runs/demo
	$(BIN)/fedskew compare $(DEMO) --seeds 0-4 $(addprefix --set ,$(DEMO_SET)) --target 0.8 --budget bytes --out runs/demo --report runs/demo/report.html
	@echo "Open it: xdg-open runs/demo/report.html (or drag the file into any browser; it needs no network)"

test: $(READY) ## run all tests (under 8 minutes on 2 cores)
	$(BIN)/pytest -n 2 --dist worksteal

$(FLOWER_READY): pyproject.toml constraints-flower.txt
	test -x $(FLOWER)/python || $(PYTHON) -m venv .venv-flower
	$(FLOWER)/pip install --quiet --constraint constraints-flower.txt --editable '.[flower]' pytest pytest-timeout pytest-xdist
	@touch $@

# The longest first, side by side: they mostly wait (for Flower's polling, and a minute until it believes that a node is dead).
# Files, not their folder: pytest would put those of a folder into alphabetical order.
LONGEST := $(patsubst %,tests/flower/test_flower_%.py,faults processes members security simulation parity folder strategy)
FLEETS := $(LONGEST) $(filter-out $(LONGEST),$(sort $(wildcard tests/flower/test_flower_*.py)))

test-flower: $(FLOWER_READY) ## the Flower runtime with real SuperLinks and SuperNodes on loopback, in an environment of its own
	@$(FLOWER)/python -m compileall -q src  # many processes import it
	FEDSKEW_FLWR_SECONDS=600 $(FLOWER)/pytest -n 3 --dist loadfile --no-loadscope-reorder --timeout=900 --durations=8 $(FLEETS) \
	  tests/parity/test_server_optimisers.py src/fedskew/runtime/flower src/fedskew/experiment/fleet.py src/fedskew/deploy

check: $(READY) ## formatting, lint, types, import rules
	$(BIN)/ruff format --check src tests benchmarks evidence
	$(BIN)/ruff check src tests benchmarks evidence
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## put the code into its standard form
	$(BIN)/ruff format src tests benchmarks evidence
	$(BIN)/ruff check --fix src tests benchmarks evidence

bench: $(READY) ## speed against a bare PyTorch loop and Flower's simulation, optimisers, objectives, memory, scaling, clustering, selection
	@status=0; for script in rounds optimisers objectives scale slots clustering selection compare flower; do \
	  $(BIN)/python benchmarks/$$script.py || status=1; done; exit $$status

bench-flower: $(READY) ## the same job on Flower's simulation engine, in an environment of its own
	$(BIN)/python benchmarks/flower.py

mutants: $(READY) ## would a test notice? 300 sampled changes to the code, at most 30 minutes; goes on where it stopped
	$(BIN)/python benchmarks/mutants.py

fuzz: $(FLOWER_READY) ## 100,000 hostile messages of every kind against whole runs: none may end a run or change what honest clients get (minutes)
	$(FLOWER)/python tests/flower/fuzz.py

drill: $(READY) $(FLOWER_READY) ## everything goes wrong: kills over all recipes, damaged folders, full disks, fuzz; at most 30 minutes, adds up over calls
	$(BIN)/python benchmarks/drill.py

evidence-%: $(READY) ## make a study of evidence/ again: `fedskew reproduce` lists them and says what is missing
	$(BIN)/fedskew reproduce $*

bank: $(READY) ## the bank of `fedskew advise`: its study, then the file that ships (hours; goes on where it was stopped; DATA=FOLDER for data that cannot be fetched)
	$(BIN)/fedskew reproduce bank $(if $(DATA),--data-folder $(DATA))
	$(BIN)/python evidence/bank/ship.py

evidence-pages: $(READY) ## write all pages of evidence/ again from their results; nothing is played
	$(BIN)/fedskew reproduce --page

$(DOCS_READY): pyproject.toml constraints-docs.txt
	test -x $(DOCS)/python || $(PYTHON) -m venv .venv-docs
	$(DOCS)/pip install --quiet --constraint constraints-docs.txt --editable '.[docs]'
	@touch $@

docs: $(DOCS_READY) ## build the site into site/, every warning an error; in an environment of its own
	@rm -rf site
	$(DOCS)/sphinx-build --quiet --fail-on-warning --fresh-env --doctree-dir .venv-docs/doctrees docs site
	@echo "Open it: xdg-open site/index.html (it needs no server and no network)"

$(PACKAGE_READY): constraints-docs.txt
	test -x .venv-package/bin/python || $(PYTHON) -m venv .venv-package
	.venv-package/bin/pip install --quiet --constraint constraints-docs.txt build twine
	@touch $@

package: $(PACKAGE_READY) ## build wheel and source archive, check them, install and use them on every Python here (minutes)
	@rm -rf build dist
	.venv-package/bin/python -m build --outdir dist .
	.venv-package/bin/twine check --strict dist/*
	.venv-package/bin/python tests/package/try_out.py dist

clean: ## remove the environment and everything built
	rm -rf $(VENV) .venv-docs .venv-package build dist site docs/gathered src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
