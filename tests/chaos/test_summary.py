"""A storm in numbers."""

from __future__ import annotations

import json

import pytest
from chaos.__main__ import main
from chaos.calm import undisturbed_share
from chaos.checker import Transcript, broken_laws
from chaos.summary import summary, table
from told_storms import Story


def numbers(story):
    transcript = Transcript(story.entries)
    return summary(transcript, broken_laws(transcript))


def test_what_came_of_each_kind_of_fault():
    story = Story()
    story.kill_worker("node2")
    story.kill_agent("node3")
    story.add_node("node3")
    story.nothing("stop_keeper", took_s=2.0)
    story.end_job("fill_etcd", "NOSPACE", amount=1)
    story.finish()
    found = numbers(story)
    assert found["violations"] == []
    assert (found["faults"], found["jobs"], found["restarts"], found["losses"]) == (5, 2, 1, 1)
    came = {kind: [row[name] for name in ("nothing", "generation", "job")] for kind, row in found["kinds"].items()}
    assert came == {
        "kill_worker": [0, 1, 0],
        "kill_agent": [0, 1, 0],
        "add_node": [0, 1, 0],
        "stop_keeper": [1, 0, 0],
        "fill_etcd": [0, 0, 1],
    }
    text = table(found)
    assert "5 faults in" in text
    assert [line.split()[:6] for line in text.splitlines() if line.startswith("fill_etcd")] == [
        ["fill_etcd", "1", "0", "0", "1", "0"]
    ]


def test_a_world_that_got_stuck_and_was_started_again():
    story = Story()
    story.fault("delete_record", "", record="generation", deleted=1)
    story.add("stuck", what="waited for steps")
    for agent, node in enumerate(("node1", "node2", "node3"), 1):
        story.add("cleared", agent=agent, node=node)
        story._end(node, -9)
    story.stop()
    story.begin_job()
    story.finish()
    found = numbers(story)
    assert found["kinds"]["delete_record"]["stuck"] == 1
    assert found["violations"] == ["the world goes on: waited for steps"]
    assert "1 times: the world goes on" in table(found)


def test_a_record_is_checked_again_and_told_to_programs(tmp_path, capsys):
    story = Story()
    story.kill_worker("node2")
    story.finish()
    record = tmp_path / "record.jsonl"
    record.write_text("".join(json.dumps(entry) + "\n" for entry in story.entries))
    assert main(["--check", str(record), "--json", str(tmp_path / "storm.json")]) == 0
    assert "nothing went wrong" in capsys.readouterr().out
    told = json.loads((tmp_path / "storm.json").read_text())
    assert told["kinds"]["kill_worker"]["restarts"] == 1


@pytest.mark.parametrize(
    ("steps", "share"),
    [
        ([0.0, 1.0, 2.0, 3.0, 4.0], 1.0),
        ([0.0, 1.0, 3.5, 4.0], 0.375),  # nothing between 1.0 and 3.5
        ([], 0.0),
        ([-9.0, 3.5], 0.125),  # disturbed until its first step
    ],
)
def test_the_share_of_the_time_in_which_a_training_goes_on(steps, share):
    entries = [{"event": "fact", "at_s": at_s, "step": place} for place, at_s in enumerate(steps)]
    assert undisturbed_share(entries, 0.0, 4.0) == share
