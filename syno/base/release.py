"""The version of Syno, its distribution name, and the pip command that installs it.

The values do not depend on pip, so they are valid also if Syno runs from its source folder without being installed.
"""

VERSION = "0.1.0"
DISTRIBUTION = "syno-operators"  # the package to import is `syno`, a name that on PyPI belongs to another project


def pip_install(extra: str) -> str:
    """Return the pip command that installs an extra of Syno, at the version of an installed Syno.

    >>> pip_install("tvm")
    'pip install "syno-operators[tvm]"'
    """
    return f'pip install "{DISTRIBUTION}[{extra}]"'
