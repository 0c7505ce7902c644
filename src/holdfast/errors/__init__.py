"""Failures: recorded by the process that failed, explained by the process that watches it."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.errors.child_failed import ChildFailedError as ChildFailedError
    from holdfast.errors.failure import ProcessFailure as ProcessFailure
    from holdfast.errors.handler import ErrorHandler as ErrorHandler
    from holdfast.errors.handler import get_error_handler as get_error_handler
    from holdfast.errors.recording import record as record
    from holdfast.errors.tree import Category as Category
    from holdfast.errors.tree import HoldfastError as HoldfastError
    from holdfast.errors.tree import InfrastructureError as InfrastructureError
    from holdfast.errors.tree import InputError as InputError
    from holdfast.errors.tree import PlatformError as PlatformError
    from holdfast.errors.tree import UserError as UserError
else:
    from holdfast._lazy import exports

    __getattr__, __dir__, __all__ = exports(
        __name__,
        {
            "child_failed": ("ChildFailedError",),
            "failure": ("ProcessFailure",),
            "handler": ("ErrorHandler", "get_error_handler"),
            "recording": ("record",),
            "tree": (
                "Category",
                "HoldfastError",
                "InfrastructureError",
                "InputError",
                "PlatformError",
                "UserError",
            ),
        },
    )
