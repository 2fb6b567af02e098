"""`python -m fedcef` is the command `fedcef`."""

from fedcef.cli.main import main

if __name__ == "__main__":
    main()
