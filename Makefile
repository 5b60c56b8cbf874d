# The commands of the project. `make help` lists them.

PYTHON ?= python3
PORT ?= 8000
PYTEST_ARGS ?=
COLAB_ARGS ?=
ONLY ?=
RUNS ?= 3
NOTEBOOKS ?= chapters/*.ipynb reference/*.ipynb
REQUIREMENTS ?= requirements.txt
# Tests run side by side, on each core up to four; tests/conftest.py says which stay together.
WORKERS := --numprocesses auto --maxprocesses 4

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help book serve print lighthouse test slow portable fuzz coverage mistakes mutants format notebooks images \
  bench bench-gpu colab latest newest links actionlint hooks dist repository clean distclean FORCE
SHELL := /bin/sh

# Everything runs in the project's own environment, and finds its tools there first.
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONNOUSERSITE := 1
# Notebooks run on the environment's kernel, with nobody's personal settings ...
export JUPYTER_PREFER_ENV_PATH := 1
export IPYTHONDIR := $(CURDIR)/$(VENV)/ipython
# ... and on one thread each: the order of a sum, so its last bit, does not hang on the number of cores.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1

help: ## list the commands
	@echo "make ..."
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'
	@echo "From a fresh clone: make book, then make test. Python 3.11 or newer is all they need."

# -- environment -----------------------------------------------------------------------------------
# Each step leaves a stamp when it is complete; an interrupted one leaves none, and is done again.

PACKAGES := $(VENV)/.packages
ATTNLIB := $(VENV)/.attnlib
NODE := node_modules/.complete
ENVIRONMENT := $(PACKAGES) $(ATTNLIB) $(NODE)
# If a step fails, step.sh shows what the tool said, and adds what to do.
STEP := $(SHELL) tools/step.sh

# An environment knows the folder and the Python it was made with. Where either is gone, make it anew.
ifneq ($(shell cat $(VENV)/.folder 2>/dev/null && $(BIN)/python -c '' 2>&1),$(CURDIR))
NEW := FORCE
endif

$(VENV)/.folder: $(NEW)
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "Cannot start: there is no command $(PYTHON). Install Python 3.11 or newer, or name it: make book PYTHON=python3.12" >&2; \
	  exit 1; }
	@"$(PYTHON)" tools/check_prerequisites.py
	@echo "Making the environment in $(VENV)"
	@$(STEP) "making the environment" "$(PYTHON)" -m venv --clear --without-pip $(VENV)
	@$(STEP) "putting pip into the environment" $(BIN)/python -m ensurepip --upgrade --default-pip
	@printf '%s\n' "$(CURDIR)" > $@

$(PACKAGES): $(REQUIREMENTS) constraints.txt $(VENV)/.folder
	@echo "Installing the pinned packages: a few minutes and, on Linux, up to 6 GB"
	@$(STEP) "installing the pinned packages" $(BIN)/python -m pip install -r $(REQUIREMENTS)
	@touch $@

$(ATTNLIB): pyproject.toml $(PACKAGES)
	@echo "Installing attnlib"
	@$(STEP) "installing attnlib" $(BIN)/python -m pip install --no-deps --no-build-isolation --editable .
	@touch $@

$(NODE): package.json package-lock.json .npmrc $(PACKAGES)
	@echo "Installing KaTeX and axe-core"
	@$(STEP) "installing what the book takes from npm" $(BIN)/npm ci --ignore-scripts
	@touch $@

# -- book ------------------------------------------------------------------------------------------

BOOK := _build/.complete
FOLDERS := _ext attnbook attnlib benchmarks/results chapters reference
SOURCES := _config.yml _toc.yml index.md references.bib tests/mistakes.txt \
  $(sort $(shell find $(FOLDERS) -type f ! -name '*.pyc' ! -path '*/.*'))

# The list changes when a file comes or goes, which the files that are left do not show.
_build/.sources: FORCE
	@mkdir -p _build
	@printf '%s\n' $(SOURCES) | cmp -s - $@ || printf '%s\n' $(SOURCES) > $@

# From nothing each time, about ten seconds: an old page would keep its warnings to itself.
$(BOOK): $(ENVIRONMENT) _build/.sources $(SOURCES)
	@echo "Building the book"
	@rm -rf _build/html _build/.doctrees
	@$(STEP) --all "building the book" $(BIN)/jupyter-book build . -W -n --keep-going --quiet
	@touch $@

book: $(BOOK) ## build the website (the first time: environment and packages too)
	@echo "The book is in $(CURDIR)/_build/html/index.html"

serve: $(BOOK) ## serve the website on this machine until Ctrl-C (PORT=8000)
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

print: $(BOOK) ## make a PDF of the whole book (needs Chromium)
	@$(BIN)/python -m tools.print_book

# Lighthouse is large, and the book needs none of it: it is installed by the first run.
LIGHTHOUSE := tools/lighthouse/node_modules/.complete

$(LIGHTHOUSE): tools/lighthouse/package.json tools/lighthouse/package-lock.json $(PACKAGES)
	@echo "Installing Lighthouse CI, 130 MB"
	@PUPPETEER_SKIP_DOWNLOAD=1 $(STEP) "installing Lighthouse" \
	  $(BIN)/npm ci --prefix tools/lighthouse --ignore-scripts
	@touch $@

lighthouse: $(BOOK) $(LIGHTHOUSE) ## measure every page with Lighthouse, phone and desktop (needs Chromium; RUNS=3)
	@cd _build && for form in mobile desktop; do \
	  FORM=$$form RUNS=$(RUNS) ../tools/lighthouse/node_modules/.bin/lhci autorun \
	    --config=../tools/lighthouse/lighthouserc.cjs || exit 1; done

# -- checks ----------------------------------------------------------------------------------------

test: $(BOOK) ## check format, lint, types, tests, every notebook (PYTEST_ARGS=...)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest --nbval --nbval-current-env -m "not slow" $(WORKERS) $(PYTEST_ARGS)

# A second command, so that the first one stays short.
slow: $(BOOK) ## check what takes longer: every page in every view, mistakes on purpose, make portable
	@$(BIN)/python -m pytest tests -m slow $(WORKERS) $(PYTEST_ARGS)
	@$(BIN)/python -m tools.portable $(WORKERS)

portable: $(ENVIRONMENT) ## run the notebooks and figures as older CPUs would, and on more threads
	@$(BIN)/python -m tools.portable $(WORKERS) $(PYTEST_ARGS)

# What it finds it keeps in .hypothesis/, and tries first the next time.
fuzz: $(ENVIRONMENT) ## draw many other examples for the properties and the fuzzing (PYTEST_ARGS=...)
	@HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest tests/attnlib/test_fuzz.py tests/attnlib/test_properties.py \
	  $(WORKERS) $(PYTEST_ARGS)

coverage: $(ENVIRONMENT) ## say which lines of the packages the unit tests run, and which the notebooks
	@$(BIN)/python -m tools.covered $(WORKERS) $(PYTEST_ARGS)

mistakes: $(ENVIRONMENT) ## make mistakes on purpose; tests and chapters must notice (ONLY="row sum")
	@$(BIN)/python -m tools.mistakes --only "$(ONLY)"

mutants: $(ENVIRONMENT) ## make every change of mutmut, and list what no test notices (ONLY="attnlib.masks*")
	@rm -rf mutants
	@$(BIN)/mutmut run $(ONLY)
	@$(BIN)/mutmut results

hooks: $(ENVIRONMENT) ## let git check format, lint, types and workflows before each commit
	@$(BIN)/pre-commit install

# Its linter is no Python program: pre-commit installs it, and it comes from GitHub.
actionlint: $(ENVIRONMENT) ## check the syntax of the workflows
	@$(BIN)/pre-commit run actionlint --all-files

format: $(ENVIRONMENT) ## format code and notebooks, mend what lint can mend
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .
	@$(BIN)/python -m tools.notebooks normalise

notebooks: $(ENVIRONMENT) ## run the notebooks in place and normalise them (NOTEBOOKS=chapters/...)
	@$(BIN)/python -m tools.notebooks execute $(NOTEBOOKS)

images: $(ENVIRONMENT) ## store the figures' reference images again, then look at the diff
	@$(BIN)/python -m pytest tests/attnbook/test_figures.py --update-images

# On every core, as a user would: the notebooks' one thread is for equal digits, not for time.
bench: $(ENVIRONMENT) ## time the forms against torch, one ratio a row (benchmarks/README.md)
	@env -u OMP_NUM_THREADS -u OPENBLAS_NUM_THREADS $(BIN)/python -m benchmarks.ratios
	@env -u OMP_NUM_THREADS -u OPENBLAS_NUM_THREADS $(BIN)/python -m benchmarks.blockwise

bench-gpu: $(ENVIRONMENT) ## the same on a CUDA GPU, beside torch's kernels (needs a torch with CUDA in .venv)
	@$(BIN)/python -m benchmarks.gpu

# -- other versions, other places ---------------------------------------------------------------------

colab: $(PACKAGES) ## run each chapter alone, as on Colab, in four environments (COLAB_ARGS=...)
	@$(BIN)/python -m tools.rehearse $(COLAB_ARGS)

# In an environment of its own, as pip resolves it today. Of Matplotlib's charts our words are compared.
latest: ## check everything on the newest versions of what the notebooks run on
	@rm -rf _build/latest
	@$(MAKE) --no-print-directory _build/latest/.folder VENV=_build/latest
	@_build/latest/bin/python -m tools.latest > _build/latest.txt
	@$(MAKE) --no-print-directory test VENV=_build/latest REQUIREMENTS=_build/latest.txt \
	  PYTEST_ARGS="--nbval-sanitize-with tests/attnbook/newer_matplotlib.cfg $(PYTEST_ARGS)"

# Torch and the rest come from the project's environment; Jupyter Book only writes down the configuration.
NEWEST := furo myst-nb sphinx sphinx-copybutton sphinx-external-toc sphinx-multitoc-numbering sphinx-notfound-page \
  sphinx-sitemap sphinxcontrib-bibtex sphinxext-opengraph

newest: $(ENVIRONMENT) ## build the book with the newest Sphinx, MyST-NB and Furo, without Jupyter Book
	@rm -rf _build/newest
	@$(BIN)/python -m venv _build/newest
	@_build/newest/bin/python -m pip install --quiet $(NEWEST)
	@_build/newest/bin/python -m pip list
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > "$$(_build/newest/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/project.pth"
	@trap 'rm -f conf.py' EXIT; $(BIN)/jupyter-book config sphinx . > /dev/null && \
	  sed "s/'jupyter_book', //" conf.py > _build/conf.py && mv _build/conf.py conf.py && \
	  PYTHONPATH=_ext:. _build/newest/bin/python -m sphinx -W -n --keep-going -q -b html . _build/newest/html

links: $(ENVIRONMENT) ## ask every other site that the book links to
	@$(BIN)/jupyter-book build . --path-output _build/links --builder linkcheck --quiet >/dev/null || { \
	  grep -F '[broken]' _build/links/_build/html/output.txt; exit 1; }
	@echo "Every link to another site leads somewhere."

# -- releases --------------------------------------------------------------------------------------

dist: $(ENVIRONMENT) ## build wheel and sdist into dist/, check them, try the wheel by itself
	@rm -rf dist
	@$(STEP) "building wheel and sdist" $(BIN)/python -m build --no-isolation --outdir dist .
	@$(BIN)/python -m tools.release dist

# -- housekeeping ----------------------------------------------------------------------------------

repository: $(VENV)/.folder ## set the repository's address everywhere (URL=https://github.com/ACCOUNT/REPO)
	@$(BIN)/python -m tools.set_repository "$(URL)"

clean: ## remove the website and all caches, keep the environment
	@rm -rf _build mutants
	@find . \( -path ./$(VENV) -o -path ./node_modules -o -path ./.git \) -prune -o -type d \
	  \( -name __pycache__ -o -name .hypothesis -o -name '.*_cache' -o -name .ipynb_checkpoints \) \
	  -prune -exec rm -rf {} +

distclean: clean ## remove the environment too
	@rm -rf $(VENV) node_modules tools/lighthouse/node_modules *.egg-info build dist
