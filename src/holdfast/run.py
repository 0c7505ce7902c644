"""``python -m holdfast.run`` takes the command line of ``torchrun``: it is ``holdfast run``."""

import sys

from holdfast.own_path import put_directory_last

if __name__ == "__main__":
    put_directory_last()
    from holdfast.cli.command import main

    words = sys.argv[1:]
    sys.exit(main(words if words == ["--version"] else ["run", *words]))
