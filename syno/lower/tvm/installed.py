"""The only place that imports TVM, with a clear error where it is not installed."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from syno.base.errors import MissingPackageError
from syno.base.release import pip_install

# The two packages are released separately. With other versions of apache-tvm-ffi, among them the one that pip would choose,
# TVM 0.27 builds and runs code, but tuning crashes the process.
VERSIONS = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}
INSTALL = pip_install("tvm")


def require() -> None:
    """Raise MissingPackageError unless TVM is installed in the versions that work together. It is not imported."""
    try:
        installed = {package: version(package) for package in VERSIONS}
    except PackageNotFoundError as error:
        raise MissingPackageError(f"TVM is not installed: there is no package {error.name}; {INSTALL}") from None
    if installed != VERSIONS:
        present, wanted = (" with ".join(map(" ".join, row.items())) for row in (installed, VERSIONS))
        raise MissingPackageError(f"TVM works only as {wanted}; installed: {present}; {INSTALL}")


@cache
def tvm() -> ModuleType:
    """Return the module `tvm` with the submodules that generated code needs. Raises as `require`."""
    require()
    import_module("tvm.te")  # `tvm` alone does not load it
    return import_module("tvm")
