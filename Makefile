# `make demo` and `make test` need only Python 3.11 or newer (venv, headers), make, a C++ compiler and openssl: .ci/setup.sh checks and says.
SHELL := /bin/bash
PYTEST_ARGS ?=
WORKERS ?= 2
DEMO_ARGS ?=
BENCH_ARGS ?=
python := .venv/bin/python

.PHONY: help demo test setup lint docs links lock readme-picture bench-overhead bench-reader clean

help:
	@echo "make demo            set up .venv, then diagnose samples/bert_train_step.py"
	@echo "make test            set up .venv, then run the whole test suite (PYTEST_ARGS, WORKERS)"
	@echo "make lint            ruff check, ruff format --check, mypy --strict"
	@echo "make docs            the documentation as a site of static files, in build/site"
	@echo "make links           ask the addresses of other sites in the documentation whether they are still there"
	@echo "make readme-picture  draw docs/images/demo.svg again from a real run"
	@echo "make bench-overhead  measure what recording costs on three models (BENCH_ARGS)"
	@echo "make bench-reader    measure the trace reader beside tlparse (BENCH_ARGS)"
	@echo "make lock            make requirements/*.txt again from pyproject.toml"
	@echo "make clean           remove .venv, .venv-oldest, .venv-torch-* and .uv"

setup:
	@bash .ci/setup.sh .venv requirements/newest.txt

demo: setup
	.venv/bin/dynadiag explain samples/bert_train_step.py $(DEMO_ARGS)

# torch's bytecode is written once here, not by each worker at the same time: 10 CPU seconds each.
test: setup
	@env -u PYTHONDONTWRITEBYTECODE $(python) -c 'import torch._inductor.compile_fx'
	$(python) -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder $(PYTEST_ARGS)

lint: setup
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m mypy

docs: setup
	NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build --strict

links: setup
	PYTHONPATH=.:cli $(python) docs/site/links.py

readme-picture: setup
	$(python) docs/make_picture.py docs/images/demo.svg

bench-overhead: setup
	$(python) benchmarks/overhead.py $(BENCH_ARGS)

bench-reader: setup
	$(python) benchmarks/trace_reader.py $(BENCH_ARGS)

lock: setup
	@bash .ci/lock.sh

clean:
	rm -rf .venv .venv-oldest .venv-torch-* .uv
