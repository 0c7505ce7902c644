# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Each makes the virtual environment and installs what it needs; a second run reuses it.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# All packages but torch come from the locks in requirements/: these versions, these hashes, and nothing is built.
LOCKED := --no-deps --require-hashes --only-binary :all: --requirement requirements

.DEFAULT_GOAL := help
.PHONY: help demo demo-nodes test check docs format bench bench-quick chaos fuzz simulate lock release clean

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(VENV)/.base ## install, and run the main job
	$(BIN)/holdfast run --nproc-per-node 4 --max-restarts 1 --tee 3 examples/first_job.py

demo-nodes: $(VENV)/.base ## install, and run a job on three machines, which are network namespaces of this one
	HOLDFAST=$(BIN)/holdfast examples/three_machines.sh

test: $(VENV)/.test check ## install, and run every check and every test
	$(BIN)/python $(if $(ARGS),-m pytest $(ARGS),tests/support/lanes.py)

DOCS := -q -W --keep-going -b html docs build/docs

check: $(VENV)/.check ## style, types, layers, locks, documentation
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python scripts/lock.py --check
	$(BIN)/sphinx-build $(DOCS)

docs: $(VENV)/.check ## build the documentation, to be read at build/docs/index.html
	$(BIN)/sphinx-build $(DOCS)

format: $(VENV)/.check ## put the source into its one format
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(VENV)/.test ## measure side by side with torchrun (20 minutes), and show it in the README and the docs
	$(BIN)/python -m benchmarks --keep $(ARGS)

bench-quick: $(VENV)/.test ## the same with few rounds, in two minutes
	@mkdir -p build
	$(BIN)/python -m benchmarks --quick --json build/bench-quick.json --page build/bench-quick.html $(ARGS)

FAULTS  ?= 20
BACKEND ?= etcd

chaos: $(VENV)/.test ## a storm of FAULTS over a real training, the one of SEED if given; BACKEND is etcd or c10d
	$(BIN)/python -m chaos $(if $(filter command environment,$(origin SEED)),--seed $(SEED)) --faults $(FAULTS) --backend $(BACKEND) $(if $(ONLY),--only $(ONLY)) $(ARGS)

SECONDS ?= 600

fuzz: $(VENV)/.test ## fuzz all that comes from outside for SECONDS, or TARGET alone; INPUT is a file to run again
	$(BIN)/python -m fuzz --seconds $(SECONDS) $(if $(filter command environment,$(origin SEED)),--seed $(SEED)) $(if $(TARGET),--target $(TARGET)) $(if $(INPUT),--input $(INPUT)) $(ARGS)

NODES ?= 10000
SEED  ?= 0
SEEDS ?= 200

simulate: $(VENV)/.base ## simulated worlds: NODES that meet, fail and are lost, then SEEDS of each kind of weather
	$(BIN)/python tests/support/simulated_crowd.py --nodes $(NODES) --seed $(SEED)
	$(BIN)/python tests/support/simulated_storms.py --seeds $(SEEDS) --seed $(SEED)

UPGRADE ?=

lock: $(VENV)/.lock ## lock the dependencies that pyproject.toml names; UPGRADE=all, or names, takes the newest
	$(BIN)/python scripts/lock.py $(if $(UPGRADE),--upgrade $(UPGRADE))

release: $(VENV)/.release ## build wheel, sdist, SBOM and checksums of the last commit into dist/
	$(BIN)/python scripts/release.py --wheels $(VENV)/wheels

clean: ## remove what make made
	rm -rf $(VENV) build dist

# Debian's Python may come without ensurepip; the outer pip can fill an empty environment instead.
$(BIN)/python:
	@echo "making the virtual environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "holdfast needs Python 3.11 or newer")'
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { \
	  $(PYTHON) -m venv --clear --without-pip $(VENV) && \
	  $(PYTHON) -m pip --disable-pip-version-check --python $@ install --quiet $(LOCKED)/pip.txt; }

$(VENV)/.base: pyproject.toml requirements/runtime.txt requirements/build.txt | $(BIN)/python
	@echo "installing holdfast"
	@$(PIP) $(LOCKED)/runtime.txt $(LOCKED)/build.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.check: $(VENV)/.base requirements/check.txt
	@echo "installing the checkers"
	@$(PIP) $(LOCKED)/check.txt
	@touch $@

# torch is the partner that tests and benchmarks compare with; it is large, so it has a stamp of its own. The lock of
# the tests has what it needs, but for what the build for CUDA needs, which pip installs where it takes that build.
$(VENV)/.torch: scripts/dependency-group | $(VENV)/.partners
	@echo "installing torch (about a minute)"
	@$(PIP) $$($(BIN)/python scripts/dependency-group torch)
	@touch $@

$(VENV)/.partners: requirements/test.txt | $(BIN)/python
	@echo "installing what the tests need"
	@$(PIP) $(LOCKED)/test.txt
	@touch $@

$(VENV)/.test: $(VENV)/.base $(VENV)/.partners $(VENV)/.torch $(VENV)/.release scripts/system-packages
	@scripts/system-packages
	@touch $@

$(VENV)/.release: $(VENV)/.base requirements/release.txt
	@echo "installing what builds a release"
	@$(PIP) $(LOCKED)/release.txt
	@rm -rf $(VENV)/wheels
	@$(BIN)/python -m pip --disable-pip-version-check download --quiet --dest $(VENV)/wheels $(LOCKED)/runtime.txt
	@touch $@

$(VENV)/.lock: $(VENV)/.base requirements/lock.txt
	@$(PIP) $(LOCKED)/lock.txt
	@touch $@
