"""The environment of a worker: the contract between a launcher and the programs it runs."""

from __future__ import annotations

import os

from holdfast.errors.secret import public_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.agent.group import Worker, WorkerGroup, WorkerSpec


def worker_environment(
    group: WorkerGroup, worker: Worker, restart_count: int, agent_environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """What is added to the agent's environment for `worker`. The names are torch's but for HOLDFAST_GENERATION, the
    number of the round, which unlike the restart count also rises when nodes come and go.
    """
    spec = group.spec
    env = {
        "LOCAL_RANK": str(worker.local_rank),
        "RANK": str(worker.global_rank),
        "GROUP_RANK": str(group.group_rank),
        "ROLE_RANK": str(worker.role_rank),
        "ROLE_NAME": spec.role,
        "LOCAL_WORLD_SIZE": str(spec.local_world_size),
        "WORLD_SIZE": str(worker.world_size),
        "GROUP_WORLD_SIZE": str(group.group_world_size),
        "ROLE_WORLD_SIZE": str(worker.role_world_size),
        "MASTER_ADDR": str(group.master_addr),
        "MASTER_PORT": str(group.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(restart_count),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.max_restarts),
        "TORCHELASTIC_RUN_ID": spec.rdzv_handler.get_run_id(),
        "TORCHELASTIC_USE_AGENT_STORE": str(_agent_serves(spec)),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": agent_environment.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
    if group.coordinator_port is not None:
        env.update(_for_jax(group, worker, agent_environment))
    if group.generation is not None:
        env["HOLDFAST_GENERATION"] = str(group.generation)
    # A program has no use for a token, and many write their environment to where others read it.
    env.update(public_environment(agent_environment))
    if spec.virtual_local_rank:
        env["LOCAL_RANK"] = "0"
        env["CUDA_VISIBLE_DEVICES"] = _own_device(worker.local_rank, agent_environment.get("CUDA_VISIBLE_DEVICES"))
    return env


def _agent_serves(spec: WorkerSpec) -> bool:
    """Where the specification has a master of its own, that one is not the agent's."""
    return spec.rdzv_handler.use_agent_store and spec.master_addr is None and spec.master_port is None


def _for_jax(group: WorkerGroup, worker: Worker, agent_environment: Mapping[str, str]) -> dict[str, str]:
    """What `jax.distributed.initialize` looks for, or people give it. Nothing else reads these."""
    address = f"[{group.master_addr}]" if ":" in str(group.master_addr) else group.master_addr
    env = {
        "JAX_COORDINATOR_ADDRESS": f"{address}:{group.coordinator_port}",
        "JAX_NUM_PROCESSES": str(worker.world_size),
        "JAX_PROCESS_ID": str(worker.global_rank),
    }
    # A single worker may use all devices of its node; of several, each has its own.
    if group.spec.local_world_size > 1 and "JAX_LOCAL_DEVICE_IDS" not in agent_environment:
        env["JAX_LOCAL_DEVICE_IDS"] = "0" if group.spec.virtual_local_rank else str(worker.local_rank)
    return env


def _own_device(local_rank: int, visible: str | None) -> str:
    """The one device that a worker sees: of those that the agent sees, the one at its rank."""
    if visible is None:
        return str(local_rank)
    devices = [device.strip() for device in visible.split(",")]
    if local_rank >= len(devices):
        from holdfast.errors.tree import InputError

        raise InputError(
            f"CUDA_VISIBLE_DEVICES={visible!r}: it has {len(devices)} devices, and --virtual-local-rank needs one for "
            f"each worker of the node, of which there are at least {local_rank + 1}"
        )
    return devices[local_rank]


def substitute_local_rank(argument: str, local_rank: int) -> str:
    """An argument with ``${local_rank}`` replaced; whatever else has a dollar in it stays as it is."""
    if "$" not in argument:
        return argument
    from string import Template

    return Template(argument).safe_substitute(local_rank=str(local_rank))
