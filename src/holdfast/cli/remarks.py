"""Remarks about a job that runs anyway."""

from __future__ import annotations

from holdfast.rendezvous.backends import BACKENDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace


def shortcomings(args: Namespace, gpus: int) -> list[str]:
    """Requested features that a machine with `gpus` GPUs cannot provide. Always shown."""
    remarks = []
    if args.numa_binding is not None and not gpus:
        remarks.append(f"--numa-binding {args.numa_binding!r}: this machine has no GPU; workers are not bound")
    if args.virtual_local_rank and not gpus:
        remarks.append("--virtual-local-rank: this machine has no GPU; LOCAL_RANK is still 0 in every worker")
    return remarks


def hints(args: Namespace, sets_threads: bool) -> list[str]:
    """Silent defaults and ignored options. Shown only on a terminal: other output is the program's alone."""
    remarks = []
    if sets_threads:
        remarks.append("OMP_NUM_THREADS is set to 1 for each worker; set it yourself if they should use more threads")
    if args.standalone:
        return remarks
    if args.rdzv_backend != "static":
        if args.node_rank and args.rdzv_backend not in BACKENDS:
            remarks.append(f"--node-rank {args.node_rank} is not used: the backend {args.rdzv_backend} gives out ranks")
        if args.master_port is not None and not args.rdzv_endpoint:
            remarks.append(
                f"--master-port {args.master_port} is not used: with the backend {args.rdzv_backend} "
                "nodes meet at --rdzv-endpoint"
            )
    return remarks
