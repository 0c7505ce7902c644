"""Checks of a machine for faults that break jobs. Each finding says what to do."""
