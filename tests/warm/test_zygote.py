"""The template's descriptors. What it does as a process is in the other files beside this one."""

from __future__ import annotations

from fresh_python import run_fresh


def run(code):
    ended = run_fresh(code)
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_descriptors_come_to_the_numbers_that_are_wanted():
    """Also those that have each other's number, and those whose number is one of the ends'."""
    run("""
        import os, random
        from holdfast.warm.zygote import _place

        NUMBERS = range(60, 66)
        def memory(text):
            fd = os.memfd_create(text)
            os.write(fd, text.encode())
            return fd

        chance = random.Random(7)
        for _ in range(200):
            at = chance.sample(NUMBERS, 5)
            for number in at:
                made = memory(f"was {number}")
                os.dup2(made, number)
                os.close(made)
            ends, rest = at[:2], at[2:]
            wanted = dict(zip(chance.sample(NUMBERS, 3), rest))
            before = len(os.listdir("/proc/self/fd"))
            moved = _place(ends, wanted)
            assert len(os.listdir("/proc/self/fd")) == before, (ends, wanted)
            for number, was in wanted.items():
                assert os.pread(number, 99, 0) == f"was {was}".encode(), (ends, wanted)
            for number, was in zip(moved, ends):
                assert number not in wanted
                assert os.pread(number, 99, 0) == f"was {was}".encode(), (ends, wanted)
            for fd in {*moved, *wanted}:
                os.close(fd)
    """)


def test_its_own_descriptor_is_out_of_the_way():
    run("""
        import os, resource
        from holdfast.warm.zygote import FIRST_DESCRIPTOR, _out_of_the_way

        fd = os.dup(0)
        moved = _out_of_the_way(fd)
        assert moved >= FIRST_DESCRIPTOR and not os.get_inheritable(moved)
        fd = os.dup(0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (FIRST_DESCRIPTOR, FIRST_DESCRIPTOR))
        assert _out_of_the_way(fd) == fd and not os.get_inheritable(fd)
    """)
