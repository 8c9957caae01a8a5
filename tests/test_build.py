"""The three states of the build, each with a compiler that works and one that does not.

The copy that is built holds one small native module instead of the real ones: the state machine is setup.py's, and the
real modules are compiled wherever the package is installed for these tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("Cython", reason="builds without isolation need Cython here")

DEAD_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}
NOT_BUILT = "fastfront: the compiled modules were not built"


class Built(NamedTuple):
    """What `pip wheel` said and, when it succeeded, the names in the wheel."""

    code: int
    output: str
    names: list[str]

    @property
    def compiled(self) -> list[str]:
        """The compiled modules in the wheel."""
        return [name for name in self.names if name.endswith(".so")]


Build = Callable[..., Built]


@pytest.fixture
def tree(tmp_path: Path, root: Path) -> Path:
    """A copy of what setup.py needs, with one small module to compile."""
    copy = tmp_path / "tree"
    fast = copy / "fastfront" / "fast"
    fast.mkdir(parents=True)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "fastfront/__init__.py"):
        shutil.copy(root / name, copy / name)
    (fast / "__init__.py").touch()
    (fast / "small_native.pyx").write_text("def answer():\n    return 42\n")
    return copy


@pytest.fixture
def build(tree: Path, tmp_path: Path) -> Build:
    """build(**environment) -> Built: `pip wheel` of the tree, without isolation, from nothing on the network."""

    def run(**environment: str) -> Built:
        wheels = tmp_path / "wheels"
        shutil.rmtree(wheels, ignore_errors=True)
        unset = ("FASTFRONT_NATIVE", "FASTFRONT_REQUIRE_NATIVE", "CC", "CXX")
        kept = {name: value for name, value in os.environ.items() if name not in unset}
        done = subprocess.run(
            [sys.executable, "-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps", "--no-index",
             "--disable-pip-version-check", "-w", str(wheels), "."],
            cwd=tree, env={**kept, **environment}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        names = [name for wheel in wheels.glob("*.whl") for name in zipfile.ZipFile(wheel).namelist()]
        return Built(done.returncode, done.stdout + done.stderr, names)

    return run


@pytest.fixture
def no_cython(tmp_path: Path) -> dict[str, str]:
    """An environment in which Cython cannot be imported."""
    fake = tmp_path / "fake" / "Cython"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("raise ImportError('no Cython here')\n")
    return {"PYTHONPATH": str(fake.parent)}


def test_try_compiles_and_ships_nothing_stale_when_it_later_fails(build: Build, tree: Path) -> None:
    good = build()
    assert good.code == 0, good.output
    assert len(good.compiled) == 1
    assert good.compiled[0].startswith("fastfront/fast/small_native.")
    (tree / "fastfront" / "fast" / "small_native.pyx").write_text("def answer():\n    return 43\n")
    bad = build(**DEAD_COMPILER)
    assert bad.code == 0, bad.output
    assert any(name.endswith("fastfront/fast/__init__.py") for name in bad.names)
    assert bad.compiled == []


def test_try_says_why_it_went_on_without(build: Build, tree: Path) -> None:
    built = build(**DEAD_COMPILER)
    assert built.code == 0, built.output
    assert built.compiled == []
    assert NOT_BUILT in built.output
    assert "/bin/false" in built.output.split(NOT_BUILT, 1)[1]
    assert not list(tree.rglob("*.so"))


def test_try_survives_a_missing_cython(build: Build, no_cython: dict[str, str]) -> None:
    built = build(**no_cython)
    assert built.code == 0, built.output
    assert built.compiled == []
    assert "no Cython here" in built.output.split(NOT_BUILT, 1)[1]


def test_require_fails_with_the_compilers_reason(build: Build) -> None:
    built = build(FASTFRONT_REQUIRE_NATIVE="1", **DEAD_COMPILER)
    assert built.code != 0
    assert "/bin/false" in built.output
    assert built.names == []


def test_require_fails_without_cython(build: Build, no_cython: dict[str, str]) -> None:
    built = build(FASTFRONT_REQUIRE_NATIVE="1", **no_cython)
    assert built.code != 0
    assert "no Cython here" in built.output


def test_require_fails_on_a_module_that_cython_refuses(build: Build, tree: Path) -> None:
    (tree / "fastfront" / "fast" / "small_native.pyx").write_text("cdef int x = }\n")
    assert build(FASTFRONT_REQUIRE_NATIVE="1").code != 0
    tried = build()
    assert tried.code == 0, tried.output
    assert tried.compiled == []


def test_zero_never_calls_the_compiler(build: Build) -> None:
    built = build(FASTFRONT_NATIVE="0", **DEAD_COMPILER)
    assert built.code == 0, built.output
    assert built.compiled == []
    assert NOT_BUILT not in built.output
    assert "fastfront/fast/__init__.py" in built.names


def test_zero_and_require_contradict(build: Build) -> None:
    built = build(FASTFRONT_NATIVE="0", FASTFRONT_REQUIRE_NATIVE="1")
    assert built.code != 0
    assert "contradict" in built.output


def test_insisting_at_run_time_without_the_modules_is_an_error(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "pure"
    shutil.copytree(root / "fastfront", copy / "fastfront", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "fastfront", "--version"],
        cwd=copy, env={**os.environ, "FASTFRONT_NATIVE": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    assert "FASTFRONT_NATIVE=1, but the compiled modules cannot be loaded" in done.stderr
