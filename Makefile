# make run and make test set up what they need: a virtual environment in .venv, made anew when the requirements change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8501
# Not from the environment, where some shells keep the machine's own name under HOST.
HOST := localhost

.PHONY: help run test e2e check format bench data docs clean
help:  ## show this list
	@grep -E '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(VENV)/.app: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12 run") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.app
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

run: $(VENV)/.app  ## set up and open the app (PORT=8501 HOST=localhost; HOST=0.0.0.0 lets others in)
	@echo "The Offline RL Explorer opens at http://localhost:$(PORT) (Ctrl-C ends it)."
	$(BIN)/streamlit run app.py --server.port $(PORT) --server.address $(HOST) --browser.serverAddress localhost

test: $(VENV)/.dev  ## set up and run all tests
	$(BIN)/python -m pytest -n 2

check: $(VENV)/.dev  ## format, lint, types, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

format: $(VENV)/.dev  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev  ## measure what the README claims about speed
	$(BIN)/python -m tests.bench

data: $(VENV)/.app  ## make the bundled logs anew, bit for bit
	$(BIN)/python -m offrl_core data

docs: $(VENV)/.dev  ## write the generated tables of the README
	$(BIN)/python -m tests.docs

clean:  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
