"""`python -m syno` is `syno`."""

from syno.cli import main

if __name__ == "__main__":
    main()
