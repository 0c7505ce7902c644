"""What must be true of the workers of a job: that the check finds what is wrong."""

from __future__ import annotations

from worker_lives import Life, is_world, problems


def life(node, rank, *, began=0, size=4, generation=1, **environment):
    """A worker of nodes with two of them each."""
    variables = {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": rank % 2,
        "GROUP_RANK": rank // 2,
        "MASTER_ADDR": "node1",
        "MASTER_PORT": 29500,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "HOLDFAST_GENERATION": generation,
        **environment,
    }
    said = {"event": "start", "node": node, "host": node, "pid": 100 + rank, "words": [], "at_ns": began}
    return Life({**said, "environment": {name: str(value) for name, value in variables.items()}})


def world(**options):
    return [life("ab"[rank // 2], rank, **options) for rank in range(4)]


def test_a_sound_job():
    first, second = world(), world(generation=2, began=10)
    for each in first:
        each.add({"event": "SIGTERM", "at_ns": 9})
        each.has_ended = True
    assert problems([*first, *second]) == []
    assert is_world(second, 4)


def test_a_generation_that_broke_early_may_lack_ranks():
    assert problems(world()[1:]) == []
    assert not is_world(world()[1:], 4)


def test_a_sign_of_life_after_the_next_generation_began():
    first, second = world(), world(generation=2, began=10)
    first[2].add({"event": "SIGTERM", "at_ns": 11})
    found = problems([*second, *first])
    assert len(found) == 4
    assert all("two generations at once" in each and "rank 2" in each for each in found)


def test_a_life_that_was_seen_beside_another():
    first, second = world(), world(generation=2, began=10)
    second[0].seen_with = {first[3]}
    (found,) = problems([*first, *second])
    assert "two generations at once" in found


def test_disagreement():
    lives = [*world()[:3], life("b", 3, TORCHELASTIC_RESTART_COUNT=1, MASTER_PORT=1, WORLD_SIZE=6)]
    found = "\n".join(problems(lives))
    assert "restart_count: [0, 1]" in found
    assert "master: ['node1:1', 'node1:29500']" in found
    assert "world_size: [4, 6]" in found
    assert not is_world(lives, 4)


def test_a_rank_twice():
    assert "ranks [0, 1, 2, 2, 3]" in problems([*world(), life("b", 2)])[0]


def test_a_rank_that_is_too_high():
    assert "of 4 has ranks [4]" in problems([life("b", 4)])[0]


def test_a_node_with_two_places():
    assert "do not follow each other" in problems([life("a", 0), life("a", 3)])[0]


def test_two_nodes_with_one_place():
    assert "do not follow each other" in problems([life("a", 0), life("b", 1)])[0]


def test_without_a_number_a_generation_is_what_its_workers_were_told():
    first, second = (life("a", 0, HOLDFAST_GENERATION="", TORCHELASTIC_RESTART_COUNT=count) for count in (0, 1))
    assert first.generation != second.generation
    assert "node1:29500" in first.generation
