"""Reports about a run, from its directory alone."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.report.as_json import report_json as report_json
    from holdfast.report.finding import find_run as find_run
    from holdfast.report.finding import read_node as read_node
    from holdfast.report.page import report_page as report_page
    from holdfast.report.records import Node as Node
    from holdfast.report.records import Run as Run
    from holdfast.report.text import report_text as report_text
else:
    from holdfast._lazy import exports

    __getattr__, __dir__, __all__ = exports(
        __name__,
        {
            "as_json": ("report_json",),
            "finding": ("find_run", "read_node"),
            "page": ("report_page",),
            "records": ("Node", "Run"),
            "text": ("report_text",),
        },
    )
