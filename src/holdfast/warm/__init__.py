"""Warm starts: workers are forked from a process that has already done their imports. Import from its modules."""
