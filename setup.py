"""Builds the compiled twins in fastfront/fast. Everything else about the package is in pyproject.toml.

unset                       try; when it fails, say why and install the pure Python twins
FASTFRONT_NATIVE=0          do not try
FASTFRONT_REQUIRE_NATIVE=1  a failure fails the install

All or nothing: the run-time switch takes either every compiled module or none.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SKIP = os.environ.get("FASTFRONT_NATIVE") == "0"
REQUIRE = os.environ.get("FASTFRONT_REQUIRE_NATIVE") == "1"
PACKAGE = "fastfront.fast"

if SKIP and REQUIRE:
    sys.exit("FASTFRONT_NATIVE=0 and FASTFRONT_REQUIRE_NATIVE=1 contradict each other")


def extensions() -> list[Extension]:
    """One extension for each fastfront/fast/*_native.pyx; flags that every x86-64 and arm64 machine can run."""
    headers = sorted(str(header) for header in Path("csrc").glob("*.hpp"))
    return [
        Extension(
            f"{PACKAGE}.{source.stem}",
            [str(source)],
            language="c++",
            include_dirs=["csrc"],
            depends=headers,
            extra_compile_args=["-std=c++17", "-O3", "-g0", "-fvisibility=hidden"],
        )
        for source in sorted(Path(*PACKAGE.split(".")).glob("*_native.pyx"))
    ]


class BuildNative(build_ext):
    """build_ext that runs Cython itself and, unless a failure is fatal, drops every module when one fails."""

    def run(self) -> None:
        try:
            from Cython.Build import cythonize

            made = cythonize(extensions(), build_dir="build/cython", compiler_directives={"language_level": "3"})
            sources = {extension.name: extension.sources for extension in made}
            for extension in self.extensions:  # those that setuptools has prepared already: only the sources change
                extension.sources = sources[extension.name]
            self.parallel = self.parallel or os.cpu_count()
            super().run()
        except Exception as reason:
            if REQUIRE:
                raise
            self.drop(reason)

    def drop(self, reason: Exception) -> None:
        """Says why there will be no compiled modules and removes those that this or an earlier run left."""
        print(
            f"fastfront: the compiled modules were not built: {type(reason).__name__}: {reason}\n"
            "fastfront: going on in pure Python (FASTFRONT_REQUIRE_NATIVE=1 makes this an error)",
            file=sys.stderr,
        )
        for extension in extensions():
            stem = Path(*extension.name.split("."))
            for folder in (Path(self.build_lib), Path()) if self.inplace else (Path(self.build_lib),):
                for built in (folder / stem.parent).glob(f"{stem.name}.*.so"):
                    built.unlink()
        self.extensions = []
        self.distribution.ext_modules = []


modules = [] if SKIP else extensions()
if REQUIRE and not modules:
    sys.exit(f"FASTFRONT_REQUIRE_NATIVE=1, but there are no {PACKAGE} sources here")
options: dict[str, Any] = {"ext_modules": modules, "cmdclass": {"build_ext": BuildNative}} if modules else {}
setup(**options)
