from __future__ import annotations

from holdfast.stacks.grouping import group, outliers
from holdfast.stacks.parse import Frame, Stacks, Thread

TORCH = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
LOADER = "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
TRAINER = "/venv/lib/python3.11/site-packages/lightning/trainer.py"


def at(*frames, state=""):
    """Stacks whose main thread is there: "file:line function", the innermost first."""
    read = []
    for frame in frames:
        place, _, function = frame.partition(" ")
        file, _, line = place.rpartition(":")
        read.append(Frame(file, int(line), function))
    noise = Thread("loader", is_main=False, frames=(Frame("/srv/noise.py", 1, "noise"),))
    return Stacks((noise, Thread("main", is_main=True, frames=tuple(read))), state=state)


REDUCING = at(f"{TORCH}:2810 all_reduce", "/srv/train.py:40 step", "/srv/train.py:60 main")
LOADING = at(f"{LOADER}:700 __next__", "/srv/train.py:38 step", "/srv/train.py:60 main")


def ranks(stacks):
    return [found.ranks for found in group(stacks)]


def test_the_one_rank_that_loads_data_while_others_reduce_stands_out():
    groups = group({**dict.fromkeys(range(8), REDUCING), 5: LOADING})
    assert [found.ranks for found in groups] == [(5,), (0, 1, 2, 3, 4, 6, 7)]
    assert groups[0].frames == LOADING.main.frames
    assert outliers(groups) == [5]


def test_nobody_stands_out_where_all_are_at_the_same_place():
    groups = group(dict.fromkeys(range(4), REDUCING))
    assert len(groups) == 1
    assert outliers(groups) == []


def test_one_of_two_is_no_outlier():
    assert outliers(group({0: REDUCING, 1: LOADING})) == []


def test_one_of_three_is():
    assert outliers(group({0: REDUCING, 1: LOADING, 2: REDUCING})) == [1]


def test_a_half_is_no_minority():
    assert outliers(group({0: REDUCING, 1: LOADING, 2: REDUCING, 3: LOADING})) == []


def test_all_groups_that_are_as_small_stand_out_together():
    other = at("/srv/train.py:99 save")
    groups = group({**dict.fromkeys(range(8), REDUCING), 2: LOADING, 6: other})
    assert outliers(groups) == [2, 6]


def test_where_everybody_is_elsewhere_nobody_stands_out():
    assert outliers(group({rank: at(f"/srv/train.py:{rank} step") for rank in range(8)})) == []


def test_ranks_that_wait_in_the_same_call_are_together_however_far_in_they_are():
    deeper = at(f"{TORCH}:99 _check", f"{TORCH}:2850 all_reduce", "/srv/train.py:40 step", "/srv/train.py:60 main")
    not_in_yet = at("/srv/train.py:40 step", "/srv/train.py:60 main")
    assert ranks({0: REDUCING, 1: deeper, 2: not_in_yet}) == [(0, 1, 2)]


def test_other_lines_of_the_users_code_are_other_places():
    assert len(ranks({0: REDUCING, 1: at(f"{TORCH}:2810 all_reduce", "/srv/train.py:41 step")})) == 2


def test_a_library_that_calls_everything_from_one_line_does_not_hide_the_difference():
    begin = [f"{TRAINER}:{line} _run_{line}" for line in range(10, 0, -1)]
    reducing = at(f"{TORCH}:2810 all_reduce", *begin, "/srv/train.py:60 main")
    loading = at(f"{LOADER}:700 __next__", *begin, "/srv/train.py:60 main")
    assert ranks({0: reducing, 1: loading, 2: reducing}) == [(1,), (0, 2)]


def test_a_program_that_is_installed_has_its_own_code_too():
    recipe = "/venv/lib/python3.11/site-packages/recipes/train.py"
    begin = [f"{recipe}:60 main", "/lib/python3.11/runpy.py:88 _run_code"]
    reducing, saving = at(f"{recipe}:40 step", *begin), at(f"{recipe}:45 step", *begin)
    assert ranks({0: reducing, 1: saving, 2: reducing}) == [(1,), (0, 2)]


def test_code_from_the_command_line_is_the_users():
    assert ranks({0: at("<string>:2 <module>"), 1: at("<string>:3 <module>"), 2: at("<string>:2 <module>")}) == [
        (1,),
        (0, 2),
    ]


def test_names_with_and_without_a_class_are_the_same():
    assert ranks({0: at("/srv/train.py:4 Loader.load"), 1: at("/srv/train.py:4 load")}) == [(0, 1)]


def test_a_stopped_rank_is_not_like_the_others_though_it_is_at_the_same_place():
    stopped = Stacks(REDUCING.threads, state="stopped by a signal")
    assert outliers(group({0: REDUCING, 1: stopped, 2: REDUCING})) == [1]


def test_ranks_of_which_little_is_known_are_together_by_that():
    unknown = Stacks(state="no Python stack: sleeping")
    groups = group({0: REDUCING, 1: unknown, 2: unknown, 3: Stacks()})
    assert [found.ranks for found in groups] == [(0,), (3,), (1, 2)]
    assert groups[2].frames == ()


def test_no_ranks_give_no_groups():
    assert group({}) == []
    assert outliers([]) == []
