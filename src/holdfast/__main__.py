"""``python -m holdfast`` is the command ``holdfast``."""

import sys

from holdfast.own_path import put_directory_last

if __name__ == "__main__":
    put_directory_last()
    from holdfast.cli.command import main

    sys.exit(main())
