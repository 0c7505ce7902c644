"""Where every worker is right now: the Python stacks of all its threads, and the rank that stands out.

| module | holds |
|---|---|
| `asking` | quickly requests the stacks of one process by a signal |
| `collect` | collects the stacks of this machine's workers |
| `spy` | the stacks of a process that does not answer: py-spy, the kernel |
| `remarks` | facts beside the stacks: the step, the source line |
| `parse` | from text to threads and frames |
| `grouping` | which ranks are at the same place: pure |
| `waiting` | whether a rank waits for others: pure |
| `judgement` | which rank the others wait for, and why: pure |
| `wording` | ranks and places in words |
| `wire` | a node's stacks as bytes, for the store |
| `dump` | the stacks of all ranks together, and their files in the run's directory |
| `render` | the text for people |
"""
