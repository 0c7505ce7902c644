"""The command line. The parts of ``holdfast run`` have the names of ``torch.distributed.run``."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.cli.configuration import config_from_args as config_from_args
    from holdfast.cli.configuration import determine_local_world_size as determine_local_world_size
    from holdfast.cli.configuration import get_rdzv_endpoint as get_rdzv_endpoint
    from holdfast.cli.configuration import parse_min_max_nnodes as parse_min_max_nnodes
    from holdfast.cli.environment import check_env as check_env
    from holdfast.cli.environment import env as env
    from holdfast.cli.parser import get_args_parser as get_args_parser
    from holdfast.cli.parser import parse_args as parse_args
    from holdfast.cli.running import main as main
    from holdfast.cli.running import run as run
    from holdfast.cli.worker_command import get_use_env as get_use_env
    from holdfast.cli.worker_command import run_script_path as run_script_path
else:
    from holdfast._lazy import exports

    __getattr__, __dir__, __all__ = exports(
        __name__,
        {
            "configuration": (
                "config_from_args",
                "determine_local_world_size",
                "get_rdzv_endpoint",
                "parse_min_max_nnodes",
            ),
            "environment": ("check_env", "env"),
            "parser": ("get_args_parser", "parse_args"),
            "running": ("main", "run"),
            "worker_command": ("get_use_env", "run_script_path"),
        },
    )
