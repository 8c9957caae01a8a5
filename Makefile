# Targets use the Python in PATH: make a virtual environment first, then `make build`. `make test` needs none.
PYTHON ?= python

.PHONY: build test lint types bench clean

build:
	$(PYTHON) -m pip install -q 'setuptools>=77' 'cython>=3.1'
	FASTFRONT_REQUIRE_NATIVE=1 $(PYTHON) -m pip install --no-build-isolation -e '.[dev]'

test:
	tests/run

lint:
	$(PYTHON) -m ruff check .
	find fastfront -name '*.pyx' -o -name '*.pxd' | sort | xargs -r cython-lint

types:
	$(PYTHON) -m mypy

bench:
	@cat bench/README.md

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find fastfront -name '*_native.*.so' -delete
	find . -name __pycache__ -prune -exec rm -rf {} +
