"""Prints lines of `LINE_BYTES`, all different. Arguments: rank, number of lines."""

from __future__ import annotations

import sys

LINE_BYTES = 100


def rest_of_line(rank: int) -> str:
    """What follows the ten digits of the line's number."""
    return f" rank {rank} loss 2.7182818284 learning rate 0.0003 tokens per second 31415.926535 memory 7 GB"


def main(rank: int, lines: int) -> None:
    rest = rest_of_line(rank)
    for number in range(lines):
        print(f"{number:010d}{rest}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
