"""A training program that is done at once, whatever its arguments are."""

import os

print(f"worker {os.environ['RANK']} of {os.environ['WORLD_SIZE']} is done\n", end="", flush=True)
