"""Fuzzers: arbitrary bytes for all that takes bytes or text from outside. `fuzz.target` says what a target is."""
