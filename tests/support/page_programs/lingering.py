"""A worker that uses all that an agent offers, says so in one pipe, and ends when another does."""

import os
import sys

from holdfast import watchdog, worker

sign, go = sys.argv[1:]
worker.heartbeat(1)
worker.on_stop(print)
if "TORCHELASTIC_TIMER_FILE" in os.environ:
    watchdog.configure(watchdog.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
    watchdog.expires(after=600).__enter__()
with open(sign, "w") as file:
    file.write(f"{os.environ.get('HOLDFAST_TOKEN')}\n")
with open(go) as file:
    file.read()
os._exit(0)
