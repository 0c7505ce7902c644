"""The environment of a worker: the contract between the launcher and the programs that it runs."""

from __future__ import annotations

import os

from holdfast.errors.secret import public_environment
from holdfast.processes.interruption import SIGNALS_VARIABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from holdfast.agent.group import Worker, WorkerGroup, WorkerSpec

TORCHELASTIC_HEALTH_CHECK_PORT = "TORCHELASTIC_HEALTH_CHECK_PORT"
"""The agent's own variable that asks for a health check: a port, or an address and a port."""


def worker_environment(
    group: WorkerGroup, worker: Worker, restart_count: int, agent_environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The variables that `worker` gets in addition to the agent's environment.

    The names are torch's or JAX's, except HOLDFAST_GENERATION: the generation's number, which also rises when nodes
    come and go, unlike the restart count. Variables that hold secrets are blanked.
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
    if spec.settings is not None:  # otherwise workers inherit the agent's variable
        env[SIGNALS_VARIABLE] = spec.settings.signals_to_handle
    if group.generation is not None:
        env["HOLDFAST_GENERATION"] = str(group.generation)
    # Workers do not need a token, and many programs write their environment to places where others can read it.
    env.update(public_environment(agent_environment))
    if spec.virtual_local_rank:
        env["LOCAL_RANK"] = "0"
        env["CUDA_VISIBLE_DEVICES"] = _own_device(worker.local_rank, agent_environment.get("CUDA_VISIBLE_DEVICES"))
    return env


def _agent_serves(spec: WorkerSpec) -> bool:
    """Whether the agent serves the store. It does not if the specification names its own master."""
    return spec.rdzv_handler.use_agent_store and spec.master_addr is None and spec.master_port is None


def _for_jax(group: WorkerGroup, worker: Worker, agent_environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that `jax.distributed.initialize` reads or that users pass to it. Nothing else reads them."""
    address = f"[{group.master_addr}]" if ":" in str(group.master_addr) else group.master_addr
    env = {
        "JAX_COORDINATOR_ADDRESS": f"{address}:{group.coordinator_port}",
        "JAX_NUM_PROCESSES": str(worker.world_size),
        "JAX_PROCESS_ID": str(worker.global_rank),
    }
    # A single worker may use all devices of its node; of several workers, each has its own.
    if group.spec.local_world_size > 1 and "JAX_LOCAL_DEVICE_IDS" not in agent_environment:
        env["JAX_LOCAL_DEVICE_IDS"] = "0" if group.spec.virtual_local_rank else str(worker.local_rank)
    return env


def _own_device(local_rank: int, visible: str | None) -> str:
    """The one device that a worker sees: the device at its local rank among those that the agent sees."""
    if visible is None:
        return str(local_rank)
    devices = [device.strip() for device in visible.split(",")]
    if local_rank >= len(devices):
        from holdfast.errors.tree import InputError

        raise InputError(
            f"CUDA_VISIBLE_DEVICES={visible!r}: it lists {len(devices)} devices; --virtual-local-rank needs one for "
            f"each worker, at least {local_rank + 1} on this node"
        )
    return devices[local_rank]


def substitute_local_rank(argument: str, local_rank: int) -> str:
    """Replace ``${local_rank}`` in an argument. Any other text with a dollar sign stays as it is."""
    if "$" not in argument:
        return argument
    from string import Template

    return Template(argument).safe_substitute(local_rank=str(local_rank))


def worker_arguments(spec: WorkerSpec, local_rank: int) -> tuple[Any, ...]:
    """The arguments of one worker. Those of a command may contain its local rank."""
    if not isinstance(spec.entrypoint, str):
        return spec.args
    return tuple(substitute_local_rank(str(argument), local_rank) for argument in spec.args)


def line_prefixes(template: str | None, envs: Mapping[int, Mapping[str, str]]) -> dict[int, str] | None:
    """The prefix of each worker's lines, by local rank; None for the usual one."""
    if not template:
        return None
    from string import Template

    prefix = Template(template)
    return {
        rank: prefix.safe_substitute(role_name=env["ROLE_NAME"], rank=env["RANK"], local_rank=str(rank))
        for rank, env in envs.items()
    }
