"""The events of a run: typed records, and where they go."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.events.destinations import event_handler as event_handler
    from holdfast.events.destinations import set_event_handler as set_event_handler
    from holdfast.events.event_log import EventLog as EventLog
    from holdfast.events.recording import construct_and_record_rdzv_event as construct_and_record_rdzv_event
    from holdfast.events.recording import record as record
    from holdfast.events.recording import record_rdzv_event as record_rdzv_event
    from holdfast.events.records import Event as Event
    from holdfast.events.records import EventMetadataValue as EventMetadataValue
    from holdfast.events.records import EventSource as EventSource
    from holdfast.events.records import NodeState as NodeState
    from holdfast.events.records import RdzvEvent as RdzvEvent
else:
    from holdfast._lazy import exports

    __getattr__, __dir__, __all__ = exports(
        __name__,
        {
            "destinations": ("event_handler", "set_event_handler"),
            "event_log": ("EventLog",),
            "recording": ("construct_and_record_rdzv_event", "record", "record_rdzv_event"),
            "records": ("Event", "EventMetadataValue", "EventSource", "NodeState", "RdzvEvent"),
        },
    )
