"""The version of Syno, the name that pip has it under, and the command with which pip installs it.

Nothing here asks pip, so it holds also where Syno runs from its folder and is not installed.
"""

VERSION = "0.1.0"
DISTRIBUTION = "syno-operators"  # the package to import is `syno`, a name that on PyPI belongs to another project


def pip_install(extra: str) -> str:
    """Return the pip command for an extra of Syno; an installed Syno stays at its version.

    >>> pip_install("tvm")
    'pip install "syno-operators[tvm]"'
    """
    return f'pip install "{DISTRIBUTION}[{extra}]"'
