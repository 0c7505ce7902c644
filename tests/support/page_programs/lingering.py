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
# To open it as usual waits for somebody who writes, who may be gone by now: for ever.
pipe = os.open(go, os.O_RDONLY | os.O_NONBLOCK)
os.set_blocking(pipe, True)
os.read(pipe, 1)
os._exit(0)
