# The messages of etcd's API. scripts/etcd_messages.py made this from etcd.proto: change that.

from collections.abc import Iterable, MutableSequence

from holdfast.coordination.protobuf import Schema

schema: Schema

class ResponseHeader:
    cluster_id: int
    revision: int
    raft_term: int
    def __init__(
        self,
        *,
        cluster_id: int | None = ...,
        revision: int | None = ...,
        raft_term: int | None = ...,
    ) -> None: ...

class KeyValue:
    key: bytes
    create_revision: int
    mod_revision: int
    value: bytes
    lease: int
    def __init__(
        self,
        *,
        key: bytes | None = ...,
        create_revision: int | None = ...,
        mod_revision: int | None = ...,
        value: bytes | None = ...,
        lease: int | None = ...,
    ) -> None: ...

class RangeRequest:
    key: bytes
    range_end: bytes
    count_only: bool
    def __init__(
        self,
        *,
        key: bytes | None = ...,
        range_end: bytes | None = ...,
        count_only: bool | None = ...,
    ) -> None: ...

class RangeResponse:
    header: ResponseHeader
    kvs: MutableSequence[KeyValue]
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
        kvs: Iterable[KeyValue] = ...,
    ) -> None: ...

class PutRequest:
    key: bytes
    value: bytes
    lease: int
    def __init__(
        self,
        *,
        key: bytes | None = ...,
        value: bytes | None = ...,
        lease: int | None = ...,
    ) -> None: ...

class DeleteRangeRequest:
    key: bytes
    range_end: bytes
    def __init__(
        self,
        *,
        key: bytes | None = ...,
        range_end: bytes | None = ...,
    ) -> None: ...

class RequestOp:
    request_range: RangeRequest
    request_put: PutRequest
    request_delete_range: DeleteRangeRequest
    def __init__(
        self,
        *,
        request_range: RangeRequest | None = ...,
        request_put: PutRequest | None = ...,
        request_delete_range: DeleteRangeRequest | None = ...,
    ) -> None: ...

class Compare:
    EQUAL: int
    VERSION: int
    CREATE: int
    MOD: int
    result: int
    target: int
    key: bytes
    create_revision: int
    mod_revision: int
    def __init__(
        self,
        *,
        result: int | None = ...,
        target: int | None = ...,
        key: bytes | None = ...,
        create_revision: int | None = ...,
        mod_revision: int | None = ...,
    ) -> None: ...

class TxnRequest:
    compare: MutableSequence[Compare]
    success: MutableSequence[RequestOp]
    failure: MutableSequence[RequestOp]
    def __init__(
        self,
        *,
        compare: Iterable[Compare] = ...,
        success: Iterable[RequestOp] = ...,
        failure: Iterable[RequestOp] = ...,
    ) -> None: ...

class TxnResponse:
    header: ResponseHeader
    succeeded: bool
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
        succeeded: bool | None = ...,
    ) -> None: ...

class Event:
    PUT: int
    DELETE: int
    type: int
    kv: KeyValue
    def __init__(
        self,
        *,
        type: int | None = ...,
        kv: KeyValue | None = ...,
    ) -> None: ...

class WatchCreateRequest:
    key: bytes
    range_end: bytes
    start_revision: int
    def __init__(
        self,
        *,
        key: bytes | None = ...,
        range_end: bytes | None = ...,
        start_revision: int | None = ...,
    ) -> None: ...

class WatchRequest:
    create_request: WatchCreateRequest
    def __init__(
        self,
        *,
        create_request: WatchCreateRequest | None = ...,
    ) -> None: ...

class WatchResponse:
    header: ResponseHeader
    canceled: bool
    compact_revision: int
    cancel_reason: str
    events: MutableSequence[Event]
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
        canceled: bool | None = ...,
        compact_revision: int | None = ...,
        cancel_reason: str | None = ...,
        events: Iterable[Event] = ...,
    ) -> None: ...

class LeaseGrantRequest:
    TTL: int
    def __init__(
        self,
        *,
        TTL: int | None = ...,
    ) -> None: ...

class LeaseGrantResponse:
    header: ResponseHeader
    ID: int
    TTL: int
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
        ID: int | None = ...,
        TTL: int | None = ...,
    ) -> None: ...

class LeaseRevokeRequest:
    ID: int
    def __init__(
        self,
        *,
        ID: int | None = ...,
    ) -> None: ...

class LeaseRevokeResponse:
    header: ResponseHeader
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
    ) -> None: ...

class LeaseKeepAliveRequest:
    ID: int
    def __init__(
        self,
        *,
        ID: int | None = ...,
    ) -> None: ...

class LeaseKeepAliveResponse:
    header: ResponseHeader
    TTL: int
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
        TTL: int | None = ...,
    ) -> None: ...

class AuthenticateRequest:
    name: str
    password: str
    def __init__(
        self,
        *,
        name: str | None = ...,
        password: str | None = ...,
    ) -> None: ...

class AuthenticateResponse:
    header: ResponseHeader
    token: str
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
        token: str | None = ...,
    ) -> None: ...

class StatusRequest: ...

class StatusResponse:
    header: ResponseHeader
    version: str
    dbSize: int
    leader: int
    isLearner: bool
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
        version: str | None = ...,
        dbSize: int | None = ...,
        leader: int | None = ...,
        isLearner: bool | None = ...,
    ) -> None: ...

class AlarmRequest: ...

class AlarmMember:
    alarm: int
    def __init__(
        self,
        *,
        alarm: int | None = ...,
    ) -> None: ...

class AlarmResponse:
    header: ResponseHeader
    alarms: MutableSequence[AlarmMember]
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
        alarms: Iterable[AlarmMember] = ...,
    ) -> None: ...

class MemberListRequest: ...

class Member:
    ID: int
    def __init__(
        self,
        *,
        ID: int | None = ...,
    ) -> None: ...

class MemberListResponse:
    header: ResponseHeader
    members: MutableSequence[Member]
    def __init__(
        self,
        *,
        header: ResponseHeader | None = ...,
        members: Iterable[Member] = ...,
    ) -> None: ...
