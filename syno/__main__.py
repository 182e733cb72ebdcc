"""`python -m syno` is `syno`."""

import sys

from syno.base.fork_client import run_forked


def main() -> None:
    """Run the command that the command line gives: in a child of the fork server where there is one, or else here."""
    code = run_forked(sys.argv)
    if code is not None:
        sys.exit(code)
    from syno.cli import app

    app()


if __name__ == "__main__":
    main()
