"""Event logs as agents write them, of runs that went in all sorts of ways."""

from __future__ import annotations

import json
import os

START = 1_770_000_000.0

TRACEBACK = """Traceback (most recent call last):
  File "/srv/train.py", line 88, in <module>
    main()
  File "/srv/train.py", line 41, in main
    loss = step(batch)
  File "/srv/train.py", line 23, in step
    raise ValueError(f"loss is {loss} after step {number}")
ValueError: loss is nan after step 1200
"""


_RUN = {
    "version": "0.1.0",
    "pid": 4_000_000,
    "command": ["train.py", "--lr", "0.1"],
    "role": "default",
    "nproc": 2,
    "min_nodes": 1,
    "max_nodes": 1,
    "backend": "static",
    "max_restarts": 3,
}


class WrittenNode:
    """The log of one agent, whose clock goes on as it is told to.

    `job` is the id that the rendezvous gave it, "" as where nodes share none.
    """

    def __init__(
        self,
        log_dir,
        *,
        run_id="job7",
        host="node0",
        rank=0,
        boot=5000.0,
        wall=START,
        random="0a1b2c3d",
        job="",
        master="node0:29500",
        **run,
    ):
        self.directory = os.path.join(str(log_dir), f"{run_id}_{random}{rank}")
        os.makedirs(self.directory)
        self.path = os.path.join(self.directory, "events.jsonl")
        self.now, self._begin, self._wall = boot, boot, wall
        self._identity = {"run_id": run_id, "hostname": host, "group_rank": rank}
        self.host, self.rank, self._attempt = host, rank, 0
        self.agent, self.job, self.master = f"a9e{len(os.listdir(log_dir)):x}{random}{rank}", job, master
        self.event(
            "run.started",
            **(_RUN | {"agent": self.agent} | run),
        )

    def event(self, name, **details):
        metadata = {"format": 2, **self._identity, "monotonic": self.now, "details": details}
        self.line(
            json.dumps(
                {
                    "name": f"holdfast.{name}",
                    "source": "AGENT",
                    "timestamp": self._wall + self.now - self._begin,
                    "metadata": metadata,
                }
            )
        )
        return self

    def line(self, text):
        with open(self.path, "a", errors="surrogateescape") as file:
            file.write(f"{text}\n")
        return self

    def passes(self, seconds):
        self.now += seconds
        return self

    def starts(
        self, *, waited_s=0.0, started_s=0.1, restart=0, generation=None, nodes=1, workers=2, number=None, **more
    ):
        self._attempt = self._attempt + 1 if number is None else number
        self._restart = restart
        self.now += waited_s + started_s
        self._workers_from = self.now
        ranks = [self.rank * workers + local for local in range(workers)]
        return self.event(
            "attempt.started",
            attempt=self._attempt,
            job=self.job,
            restart=restart,
            generation=generation,
            master=self.master,
            node=self.rank,
            nodes=nodes,
            world_size=nodes * workers,
            ranks=ranks,
            pids=[1000 + rank for rank in ranks],
            waited_s=waited_s,
            started_s=started_s,
            **more,
        )

    def ends(self, outcome, ran_s, reason="", tidying_s=0.2):
        self.now = max(self.now, self._workers_from + ran_s) + tidying_s
        return self.event("attempt.ended", attempt=self._attempt, outcome=outcome, reason=reason, ran_s=ran_s)

    def fails(self, rank, kind="exception", **more):
        return self.event("failure", attempt=self._attempt, **self.failure(rank, kind, **more))

    def failure(self, rank, kind="exception", **more):
        known = {
            "exception": ("ValueError", 1, TRACEBACK, "/srv/train.py:23 in step"),
            "communication": ("DistBackendError", 1, "NCCL communicator was aborted", ""),
            "out of memory": ("", -9, "Signal 9 (SIGKILL) received by PID 1001: the memory cgroup is full", ""),
            "killed": ("", -9, "Signal 9 (SIGKILL) received by PID 1001", ""),
            "hang": ("", -15, "no progress for 300 s", "/srv/train.py:57 in barrier"),
            "crash": ("", -11, "Signal 11 (SIGSEGV) received by PID 1001", "/srv/ops.py:9 in call"),
        }
        exception, exit_code, message, where = known.get(kind, known["exception"])
        return {
            "rank": rank,
            "local_rank": rank % 2,
            "host": self.host,
            "pid": 1000 + rank,
            "exit_code": exit_code,
            "kind": kind,
            "message": message,
            "where": where,
            "exception": exception,
            "ran_s": 12.5,
            "log_file": f"{self.directory}/attempt_{self._restart}/{rank % 2}/stderr.log",
            "max_rss_kib": 2_000_000,
            "timestamp": self._wall + self.now - self._begin,
            **more,
        }

    def verdict(self, cause, decision, reason="", victims=0):
        return self.event(
            "verdict", attempt=self._attempt, cause=cause, victims=victims, decision=decision, reason=reason
        )

    def stacks(self, reason, outliers):
        return self.event("stacks", attempt=self._attempt, reason=reason, file="stacks-1.txt", outliers=outliers)

    def warns(self, text, rank=None):
        return self.event("warning", attempt=self._attempt, rank=rank, text=text)

    def done(self, outcome, reason="", restarts=0):
        return self.event("run.ended", outcome=outcome, reason=reason, restarts=restarts)


def success(log_dir):
    return WrittenNode(log_dir).passes(0.05).starts().ends("succeeded", 3600).passes(0.3).done("succeeded")


def restarted(log_dir, **node):
    """It fails after 20 minutes, waits for a minute, and succeeds."""
    run = WrittenNode(log_dir, **node).passes(0.05).starts(waited_s=30)
    run.ends("failed", 1200, "a worker failed").fails(1)
    run.verdict(run.failure(1), "restart", "1 of 3 restarts used")
    run.passes(5).starts(waited_s=60, restart=1).ends("succeeded", 2400)
    return run.passes(0.3).done("succeeded", restarts=1)


def four_nodes(log_dir, *, kind="exception", run_id="job7", random="0a1b2c3d", job="f00d"):
    """Four machines with clocks of their own; rank 5 on node 2 fails twice, and the others lose their peer."""
    written = []
    for rank in range(4):
        skew = [0, 340, -900, 75][rank]
        node = WrittenNode(
            log_dir,
            host=f"gpu-host-{rank}",
            rank=rank,
            run_id=run_id,
            boot=1000.0 * (rank + 1),
            wall=START + skew,
            random=random,
            job=job and f"{job}{random}",
            min_nodes=3,
            max_nodes=4,
            backend="c10d",
            max_restarts=1,
        )
        node.passes(0.1).starts(waited_s=40 - 10 * rank, generation=1, nodes=4)
        for restart in range(2):
            ran_s = (900.0, 240.0)[restart]
            node.ends("failed" if rank == 2 else "stopped", ran_s, "a worker failed")
            log_file = f"/logs/{run_id}_{random}2/attempt_{restart}/1/stderr.log"
            cause = {**node.failure(5, kind), "host": "gpu-host-2", "log_file": log_file}
            if rank == 2:
                node.fails(5, kind)
            else:
                node.fails(rank * 2, "communication")
            node.verdict(
                cause, ("restart", "stop")[restart], ("1 of 1 restarts used", "no restart is left")[restart], 3
            )
            if restart == 0:
                node.passes(2).starts(waited_s=8, generation=2, restart=1, nodes=4)
        node.passes(1).done("failed", "no restart is left", 1)
        written.append(node)
    return written


def three_machines(log_dir, *, job="beef0123456789ab", wall=START):
    """The third of three machines is lost in the first generation, and back in the third."""
    common = {"job": job, "backend": "c10d", "min_nodes": 2, "max_nodes": 3, "max_restarts": 0}
    written = []
    for rank, host in enumerate(("machine1", "machine2")):
        node = WrittenNode(log_dir, host=host, rank=rank, random=f"aaaa000{rank}", wall=wall, **common)
        node.passes(0.1).starts(generation=1, nodes=3).ends("stopped", 20, "lost machine3")
        node.starts(generation=2, nodes=2).ends("stopped", 30, "letting in machine3")
        node.starts(generation=3, nodes=3).ends("succeeded", 50).done("succeeded")
        written.append(node)
    lost = WrittenNode(log_dir, host="machine3", rank=2, random="aaaa0002", wall=wall, **common)
    lost.passes(0.1).starts(generation=1, nodes=3)
    back = WrittenNode(log_dir, host="machine3", rank=2, random="aaaa0003", wall=wall + 45, boot=5045.0, **common)
    back.starts(waited_s=5, generation=3, nodes=3).ends("succeeded", 50).done("succeeded")
    return [*written, lost, back]


def two_told(log_dir, *, random="0a1b2c3d", wall=START, outcome="succeeded", **node):
    """Two nodes that were told who they are, and share no id."""
    written = []
    for rank in range(2):
        known = {"run_id": "none", "master": "node0:29500", "min_nodes": 2, "max_nodes": 2} | node
        run = WrittenNode(log_dir, host=f"node{rank}", rank=rank, random=random, wall=wall + 3 * rank, **known)
        run.passes(0.1).starts(nodes=2).ends(outcome, 100).done(outcome)
        written.append(run)
    return written


def hang(log_dir):
    run = WrittenNode(log_dir, nproc=4).starts(workers=4).passes(600)
    run.stacks("no progress for 300 s", [2]).ends("failed", 600, "no progress for 300 s").fails(2, "hang")
    run.verdict(run.failure(2, "hang"), "stop", "no restart is left", 3)
    return run.done("failed", "no restart is left")


def killed_agent(log_dir, **node):
    return WrittenNode(log_dir, **node).starts().passes(100).stacks("somebody asked", [])


def without_attempt(log_dir):
    return WrittenNode(log_dir).passes(600).done("failed", "nobody came to the rendezvous within 600 s")


def many_attempts(log_dir, count):
    run = WrittenNode(log_dir, max_restarts=count)
    for restart in range(count):
        run.starts(restart=restart, waited_s=0.5).ends("failed", 30 + restart % 7, "a worker failed").fails(1)
        run.verdict(run.failure(1), "restart", "more are left").passes(1)
    return run.starts(restart=count).ends("succeeded", 500).done("succeeded", restarts=count)


def torch_only(log_dir):
    """As torch's agent, or an older one, writes them."""
    run = WrittenNode(log_dir)
    os.truncate(run.path, 0)
    more = {"group_world_size": 1, "role_world_size": [2], "exit_code": [1], "worker_pid": [77]}
    error = {"message": {"message": "ValueError: nan", "extraInfo": {"py_callstack": TRACEBACK, "timestamp": "1"}}}
    for source, state, restarts, rank, raw_error in (
        ("WORKER", "FAILED", 0, 0, json.dumps(error)),
        ("WORKER", "TERMINATED", 0, 1, None),
        ("WORKER", "SUCCEEDED", 1, 0, None),
        ("WORKER", "SUCCEEDED", 1, 1, None),
        ("AGENT", "SUCCEEDED", 1, None, None),
    ):
        metadata = {
            "run_id": "job7",
            "global_rank": rank,
            "group_rank": 0,
            "hostname": "node0",
            "state": state,
            "raw_error": raw_error,
            "metadata": json.dumps({**more, "local_rank": [rank]}),
            "agent_restarts": restarts,
            "rdzv_backend": "static",
            "role": "default",
        }
        run.line(
            json.dumps(
                {
                    "name": f"torchelastic.worker.status.{state}",
                    "source": source,
                    "timestamp": START + 60 * restarts,
                    "metadata": metadata,
                }
            )
        )
    return run
