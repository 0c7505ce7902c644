"""A storm: a real training on four nodes, under faults that a seed decides, and a checker of all that was seen.

`kinds` says what faults there are and what must follow from each, `storm` makes a plan of them, `world` is the nodes,
`faults` and `store_faults` do and undo, `course` goes through the plan, `observer` and `record` hold what was seen.
`checker` and `job_laws` are the laws, `stages`, `generations` and `attribution` what they read, `summary` the numbers.
`worker`, `witness`, `relay`, `foreign` and `recompute` are programs.
"""
