"""Workers that are forked from a process which has done their imports. Its names are in its modules."""
