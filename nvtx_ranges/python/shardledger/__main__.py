"""`python -m shardledger …` is the command `shardledger …` of the same installation."""

import os
import sys

from ._companion.layout import find_command


def main():
    command = find_command()
    if command is None:
        sys.exit("shardledger: the command is not installed beside this package, and not on PATH")
    sys.stdout.flush()
    os.execv(command, ["shardledger", *sys.argv[1:]])


if __name__ == "__main__":
    main()
