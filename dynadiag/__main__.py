"""`python -m dynadiag` is the same as the `dynadiag` command."""

from dynadiag_cli.main import main

if __name__ == "__main__":
    main()
