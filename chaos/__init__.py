"""A storm: a real training on four nodes, under faults that a seed decides, and a checker of all that was seen.

`kinds` says what faults there are and what must follow from each, `storm` makes a plan of them, `world` is the nodes,
`faults` does and undoes, `observer` and `record` hold what was seen, `checker` finds what should not have been.
"""
