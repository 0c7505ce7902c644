"""The agent's end of a template, with templates that misbehave; and how descriptors get their numbers."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest
from liveness import exists, footprint, settle

from holdfast.processes.keeper_client import KeeperClient, LostTemplateError, NoTemplateError
from holdfast.processes.launch import Launch
from holdfast.warm import template as module
from holdfast.warm.template import Template

# Python that does as the template should up to a point. Its words are "-u -c BOOT ROOT DESCRIPTOR ...".
ACTOR = """#!{python}
import os, socket, sys, time
control = socket.socket(fileno=int(sys.argv[5]))
socket.recv_fds(control, 65536, 1)
{then}
"""

IMPORTED = r"control.send(b'modules\x00\x31')" "\n"


@pytest.fixture
def actor(tmp_path):
    """Makes a template that is an actor."""
    made = []

    def make(then):
        path = tmp_path / "actor"
        path.write_text(ACTOR.format(python=sys.executable, then=then))
        path.chmod(0o755)
        made.append(Template([str(path), "-u", "script.py"]))
        return made[-1]

    yield make
    for each in made:
        each.close()


def fork(template):
    ends = (*os.pipe(), os.memfd_create("counts"))
    try:
        return template.fork_keeper([], ends, ())
    except NoTemplateError:
        return None
    finally:
        for fd in ends:
            os.close(fd)


def test_one_that_does_not_answer_is_given_up(actor, monkeypatch):
    monkeypatch.setattr(module, "ANSWER_WAIT_S", 0.2)
    monkeypatch.setattr(module, "END_WAIT_S", 0.1)
    before = footprint()
    template = actor(f"{IMPORTED}time.sleep(1000)")
    template.start()
    assert template.is_ready()
    first = template.pid
    assert not template.is_ready()
    assert not exists(first)
    assert template.pid not in (first, -1), "there is another for the next time"
    assert template.is_ready()
    assert fork(template) is None
    template.close()
    assert template.pid == -1
    settle(before)


def test_imports_that_do_not_end_are_not_waited_for_any_longer(actor, monkeypatch, caplog):
    monkeypatch.setattr(module, "IMPORTS_MAX_S", 0.5)
    template = actor("control.send(b'importing\\0slow_of_test')\ntime.sleep(1000)")
    template.start()
    first = template.pid
    assert select.select([template._control], [], [], 60)[0], "it has said what it imports"
    assert not template.is_ready()
    assert not exists(first)
    assert "no warm start: the template has waited for import slow_of_test for 0 s" in caplog.text
    assert not template.is_ready()
    assert template.pid == -1, "it would be as slow again"


def test_one_whose_parent_is_another_by_now_ends(tmp_path, monkeypatch):
    """The agent was killed before the kernel was asked to tell of that."""
    script = tmp_path / "script.py"
    script.write_text("import json\n")
    template = Template([sys.executable, "-u", str(script)])
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "getpid", lambda: 1)
        template.start()
    assert not template.is_ready()
    template.close()


def test_an_answer_that_came_in_time_is_read_however_late_the_agent_looks(actor):
    """The agent was stopped meanwhile."""
    template = actor(f"{IMPORTED}time.sleep(1000)")
    template.start()
    assert select.select([template._control], [], [], 60)[0]
    assert template._receive(0.0)[0] == {"modules": "1"}


def test_imports_that_are_told_without_end_are_not_waited_for_any_longer(actor, monkeypatch):
    monkeypatch.setattr(module, "IMPORTS_MAX_S", 0.5)
    template = actor("while True: control.send(b'importing\\0slow_of_test')")
    template.start()
    assert not template.is_ready()
    assert template.pid == -1


FORKS_AND_SAYS_NOTHING = """
_, fds, _, _ = socket.recv_fds(control, 65536, 250)
if os.fork() == 0:
    os.setsid()  # as a keeper does, which outlives its template
    control.close()
    brief, directory, commands, reports, shared = fds
    os.read(commands, 1)
    open({ended!r}, "w").close()
os._exit(0)
"""


def test_a_set_that_one_has_forked_without_an_answer_is_gone_before_the_cold_start(actor, tmp_path):
    ended = tmp_path / "ended"
    template = actor(IMPORTED + FORKS_AND_SAYS_NOTHING.format(ended=str(ended)))
    template.start()
    template._wait_for_imports()
    with pytest.raises(LostTemplateError):
        KeeperClient([Launch(0, ["true"], {}, "", "", [])], template=template)
    assert ended.exists()


def test_one_that_refuses(actor):
    template = actor(
        f"{IMPORTED}socket.recv_fds(control, 65536, 250)\ncontrol.send(b'refused\\0it is tired')\ntime.sleep(1000)"
    )
    template.start()
    assert template.is_ready()
    first = template.pid
    assert fork(template) is None
    assert template.pid == first, "it may be able to next time"


def test_one_that_ends_instead_of_an_answer(actor):
    template = actor(f"{IMPORTED}socket.recv_fds(control, 65536, 250)\nos._exit(3)")
    template.start()
    assert template.is_ready()
    assert fork(template) is None
    assert template.is_ready()


def test_one_that_lives_on_without_its_end_of_the_line(actor):
    template = actor("control.close()\ntime.sleep(1000)")
    template.start()
    first = template.pid
    assert not template.is_ready()
    assert not exists(first)


def test_an_interpreter_that_is_not_there(tmp_path, caplog):
    template = Template([str(tmp_path / "missing"), "-u", "script.py"])
    template.start()
    template.start()
    assert not template.is_ready()
    assert caplog.text.count("no warm start: ") == 1


def test_closed_it_can_be_started_again(tmp_path):
    before = footprint()
    script = tmp_path / "script.py"
    script.write_text("import json\n")
    template = Template([sys.executable, "-u", str(script)])
    for _ in range(3):
        template.start()
        assert template.is_ready()
        assert template.is_ready()
        template.close()
        template.close()
    settle(before)


NUMBERS = """
import os, random, sys
from holdfast.warm.zygote import _place

def inode(fd):
    return os.fstat(fd).st_ino

for seed in range(300):
    random.seed(seed)
    low = os.dup(0)
    os.close(low)
    places = list(range(low, low + random.randint(3, 12) + 8))
    random.shuffle(places)
    count = random.randint(0, len(places) - 3)
    opened = {}
    for place in places[: count + 3]:
        fd = os.memfd_create("x")
        if fd != place and place not in opened:
            os.dup2(fd, place)
            if fd not in opened:
                os.close(fd)
        opened[place] = inode(place)
    fds = list(opened)
    ends, rest = fds[:3], fds[3:]
    numbers = random.sample(range(low, low + 30), len(rest))
    expected = [opened[fd] for fd in rest], [opened[fd] for fd in ends]
    moved = _place(ends, dict(zip(numbers, rest, strict=True)))
    assert ([inode(fd) for fd in numbers], [inode(fd) for fd in moved]) == expected, seed
    assert not set(moved) & set(numbers)
    os.closerange(low, 256)
print("done")
"""


def test_descriptors_get_the_numbers_that_they_are_wanted_at():
    """Whatever stands in the way of what."""
    ended = subprocess.run([sys.executable, "-c", NUMBERS], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == "done\n", ended.stderr


@pytest.mark.parametrize("nonsense", [r"b'\xff' * 1000", r"b'\xdb\xff\xff\xff\x7f'", r"b'keeper'", r"b'x\0y'"])
def test_one_that_talks_nonsense_counts_as_dead(actor, caplog, nonsense):
    before = footprint()
    template = actor(f"control.send({nonsense})\ntime.sleep(1000)")
    template.start()
    first = template.pid
    assert not template.is_ready()
    assert not exists(first)
    assert "workers start cold this time" in caplog.text
    template.close()
    settle(before)


@pytest.mark.parametrize("answer", [r"b'keeper\x00x'", r"b'keeper\x0077'", r"b'keeper\x00-1'", r"b'\xe9'"])
def test_a_keeper_that_is_none_is_a_cold_start(actor, answer):
    template = actor(f"{IMPORTED}socket.recv_fds(control, 65536, 100)\ncontrol.send({answer})\ntime.sleep(1000)")
    template.start()
    assert select.select([template._control], [], [], 60)[0]
    template._wait_for_imports()
    assert fork(template) is None
