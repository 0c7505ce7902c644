"""Records of storms that never were, for the checker: three nodes with a worker each, and what befalls them.

Every method adds what would be seen if all went well. A test then changes what it wants to be wrong.
"""

from __future__ import annotations

import copy

LEASE_S = 5.0


class Story:
    """A record in the making. `entries` is what the checker reads."""

    def __init__(self):
        self.entries = []
        self.generation = 0
        self.restarts = 0
        self._clock_ns = 1_000
        self._lives = {}
        self._agents = {}
        self._count = 0
        self._told = []
        self._attempts = {}
        self._verdict = None
        self._step = 0
        self._fault = 0
        self.job = 1
        self.add("storm", seed=1, backend="etcd", workers=[1, 1, 1], lease_s=LEASE_S)
        for node in ("node1", "node2", "node3"):
            self._start(node)
        self.run("start")

    def add(self, event, **facts):
        self.entries.append({"event": event, "at_s": float(len(self.entries)), **facts})
        return self.entries[-1]

    def find(self, event, place=-1, **facts):
        """An entry that is there, to be changed."""
        return [
            entry
            for entry in self.entries
            if entry["event"] == event and all(entry.get(name) == value for name, value in facts.items())
        ][place]

    def _start(self, node):
        self._agents[node] = len([entry for entry in self.entries if entry["event"] == "agent"]) + 1
        number = self._agents[node]
        self.add("agent", agent=number, job=self.job, node=node, pid=100 + number, warm=True)

    def _end(self, node, code, said=""):
        self.add("agent_end", agent=self._agents.pop(node), node=node, code=code, said=said)

    def _tell(self, node, name, **details):
        run = f"chaos_{self._agents[node]}"
        self._attempts.setdefault(run, 0)
        self._attempts[run] += name == "attempt.started"
        details = {"attempt": self._attempts[run], **details}
        if name == "attempt.started":
            details["pids"] = [self._lives[node]["pid"]]
        facts = {"run": run, "job": self.job, "node": node, "name": name, "details": details}
        self._told.append({"event": "told", **facts})

    def run(self, stage):
        """The nodes that have an agent run in a new generation, make some steps, and are seen to."""
        before, self.generation = self.generation, self.generation + 1
        world = sorted(self._agents)
        for rank, node in enumerate(world):
            self._count += 1
            self._clock_ns += 10
            environment = {"RANK": rank, "LOCAL_RANK": 0, "GROUP_RANK": rank, "WORLD_SIZE": len(world)}
            environment |= {"MASTER_ADDR": world[0], "MASTER_PORT": 1000 + self.generation}
            environment |= {"TORCHELASTIC_RESTART_COUNT": self.restarts, "HOLDFAST_GENERATION": self.generation}
            life = {"life": self._count, "node": node, "host": node, "pid": 1000 + self._count, "at_ns": self._clock_ns}
            life |= {"steps": 10**9, "job": self.job}
            text = {name: str(value) for name, value in environment.items()}
            self._lives[node] = self.add("begin", **life, environment=text)
            if self._verdict:
                self._tell(node, "verdict", cause=copy.copy(self._verdict))
            self._tell(node, "attempt.started", generation=self.generation, restart=self.restarts)
        self._verdict = None
        self.add("fact", resumed_at=self._step, world=len(world), generation=self.generation)
        self.steps(2)
        self.add("settled", stage=stage, job=self.job, generation=self.generation, before=before)

    def steps(self, count):
        for _ in range(count):
            facts = {"step": self._step, "samples": 64, "world": len(self._agents), "generation": self.generation}
            self.add("fact", **facts)
            self._step += 1
        self.add("fact", saved=self._step, generation=self.generation)

    def stop(self, *nodes):
        for node in nodes or sorted(self._lives):
            self._clock_ns += 10
            self.add("end", life=self._lives.pop(node)["life"], seen_ns=self._clock_ns, last_ns=self._clock_ns - 1)

    def fault(self, kind, node="", took_s=0.0, **hit):
        facts = {"began_s": float(len(self.entries)), "took_s": took_s, **hit}
        self.add("fault", step=self._fault, kind=kind, node=node, **facts)
        self._fault += 1

    def all_tell(self, reason, outcome="stopped", but=()):
        for node in sorted(self._agents):
            if node not in but:
                self._tell(node, "attempt.ended", outcome=outcome, reason=reason)

    def failure(self, node, kind="killed", exit_code=-9):
        life = self._lives[node]
        rank = int(life["environment"]["RANK"])
        facts = {"rank": rank, "host": node, "pid": life["pid"], "exit_code": exit_code, "kind": kind}
        return {**facts, "exception": "", "message": "what it said"}

    # What can happen, and how it is told

    def kill_worker(self, node):
        failure = self.failure(node)
        rank = failure["rank"]
        self.fault("kill_worker", node, hit=True, pid=failure["pid"], rank=rank, generation=self.generation)
        for other in sorted(self._agents):
            if other == node:
                self._tell(other, "failure", **failure)
        self.all_tell("rank failed", "failed", but=set(self._agents) - {node})
        self.all_tell(f"rank {rank} on {node} failed: Signal 9 (SIGKILL) received", but={node})
        self.stop()
        self._verdict = failure
        self.restarts += 1
        self.run("0 do")

    def kill_agent(self, node, reason=None):
        self.fault("kill_agent", node)
        self._end(node, -9)
        self.all_tell(reason or f"lost {node}")
        self.stop()
        self.run("0 do")

    def remove_node(self, node):
        self.fault("remove_node", node)
        self.all_tell(f"{node} leaves: SIGTERM", but={node})
        self._tell(node, "attempt.ended", outcome="stopped", reason="process 7 got the signal SIGTERM")
        self._end(node, 143)
        self.stop()
        self.run("0 do")

    def add_node(self, node):
        self.all_tell(f"letting in {node}")
        self._start(node)
        self.fault("add_node", node)
        self.stop()
        self.run("0 do")

    def cut_link(self, node):
        self.fault("cut_link", node)
        self.all_tell(f"lost {node}", but={node})
        self._tell(node, "attempt.ended", outcome="stopped", reason="the store cannot be reached; and so on")
        self.stop()
        agent = self._agents.pop(node)
        self.run("0 do")
        self.add("undo", step=0, kind="cut_link", node=node)
        self.all_tell(f"letting in {node}")
        self._agents[node] = agent
        self.stop()
        self.run("0 undo")

    def hang(self, node):
        failure = self.failure(node, "hang", -15)
        rank = failure["rank"]
        self.fault("hang_worker", node, hit=True, pid=failure["pid"], rank=rank, generation=self.generation)
        self._tell("node1", "stacks", reason="hang: no heartbeat for 10 s", file="stacks/1", outliers=[1], is_kept=True)
        self._tell(node, "failure", **failure)
        self.all_tell("rank failed", "failed", but=set(self._agents) - {node})
        self.all_tell(f"rank {rank} on {node} failed: made no progress", but={node})
        self.stop()
        self._verdict = failure
        self.restarts += 1
        self.run("0 do")

    def flap(self, node, flaps=3, starts=0):
        """A node whose agents come and go; for each, the others start so many generations."""
        flapped = [self._agents[node]]
        self._end(node, -9)
        self.all_tell(f"lost {node}")
        self.stop()
        before = self.generation
        self.run("inside")
        self.entries.pop()  # nobody has seen it run
        from_s = until_s = 1e6
        self.steps(1)
        self.entries[-2]["at_s"] = from_s
        for _ in range(flaps):
            until_s += 0.5
            self._start(node)
            flapped.append(self._agents[node])
            self._end(node, -9)
            for _ in range(starts):
                self.all_tell(f"lost {node}")
                self.stop()
                self.run("inside")
                self.entries.pop()
                for life in self._lives.values():
                    life["at_s"] = until_s
            self.steps(1)
            self.entries[-2]["at_s"] = until_s
        until_s += 0.5
        self.all_tell(f"letting in {node}")
        self._start(node)
        self.fault("flap_node", node, flapped=flapped, signal=9, from_s=from_s, until_s=until_s)
        self.stop()
        self.run("0 do")
        self.entries[-1]["before"] = before

    def end_job(self, kind, said, code=1, **facts):
        """A fault that ends the job: all agents say so, and the next job begins."""
        self.fault(kind, facts.pop("node", ""), **facts)
        self.stop()
        self.all_tell(said)
        for node in sorted(self._agents):
            self._end(node, code, said)
        self.add("job_end", stage="0 do", job=self.job, before=self.generation)
        self.begin_job()

    def begin_job(self):
        self.job += 1
        self.add("job", job=self.job)
        self.generation = self.restarts = 0
        for node in ("node1", "node2", "node3"):
            self._start(node)
        self.run("0 restart")

    def nothing(self, kind, node="node2", **facts):
        """A fault of which nothing follows."""
        self.fault(kind, node, **facts)
        self.steps(2)
        self.add("settled", stage="0 do", job=self.job, generation=self.generation, before=self.generation)

    def finish(self):
        """The end of the training, and what was read then."""
        self.stop()
        self.all_tell("", "succeeded")
        for node in sorted(self._agents):
            self._end(node, 0)
        for entry in self.entries:
            is_of_job = entry["event"] == "begin" and entry["job"] == self.job
            if is_of_job and entry["environment"]["HOLDFAST_GENERATION"] == str(self.generation):
                entry["steps"] = self._step
        self.add("done", steps=self._step)
        self.entries += self._told
        self.add("result", loss=0.0, parameters=0.0, next_step=self._step)
        return self.entries
