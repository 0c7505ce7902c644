"""A training program that fails in all workers but one."""

import os

if os.environ["RANK"] != "0":
    raise ValueError("loss is nan")
