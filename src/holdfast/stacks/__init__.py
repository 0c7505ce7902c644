"""Where every worker is right now: the Python stacks of all its threads, and which rank is not where the others are.

| module | holds |
|---|---|
| `asking` | asking one process by a signal, quickly |
| `collect` | asking the workers of this machine |
| `spy` | asking about one that does not answer: py-spy, the kernel |
| `remarks` | what is known beside the stacks: the step, the source line |
| `parse` | from text to threads and frames |
| `grouping` | which ranks are at the same place: pure |
| `waiting` | whether a rank waits for others: pure |
| `judgement` | which rank the others wait for, and why: pure |
| `wording` | ranks and places in words |
| `wire` | a node's stacks as bytes, for the store that nodes share |
| `dump` | the stacks of all ranks together, and their files in the run's directory |
| `render` | the text for people |
"""
