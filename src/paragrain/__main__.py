"""`python -m paragrain` is the command `paragrain`."""

from paragrain.cli import main

if __name__ == "__main__":
    main()
