"""A server of gRPC that says whatever a test wants in the place of etcd."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from holdfast.coordination import etcd_messages as messages
from holdfast.coordination.etcd_answers import LEAST_TTL_MAX_S
from holdfast.coordination.etcd_rpc import load_grpc

grpc = load_grpc()  # as a client does: it must not write to stderr
STREAMS = ("Watch", "LeaseKeepAlive")
FOR_EVER_S = 600.0


def header(revision=10, **fields):
    return messages.ResponseHeader(cluster_id=1, revision=revision, raft_term=1, **fields)


def honest(method):
    """What an empty etcd answers."""
    return {
        "Status": messages.StatusResponse(header=header(), version="3.5.0", leader=1),
        "Range": messages.RangeResponse(header=header()),
        "Txn": messages.TxnResponse(header=header(), succeeded=True),
        "LeaseGrant": messages.LeaseGrantResponse(header=header(), ID=7, TTL=LEAST_TTL_MAX_S),
        "LeaseRevoke": messages.LeaseRevokeResponse(header=header()),
        "LeaseKeepAlive": messages.LeaseKeepAliveResponse(header=header(), TTL=LEAST_TTL_MAX_S),
        "Watch": messages.WatchResponse(header=header()),
        "Authenticate": messages.AuthenticateResponse(header=header(), token="token.1"),
        "Alarm": messages.AlarmResponse(header=header()),
        "MemberList": messages.MemberListResponse(header=header()),
    }[method]


class Refusal:
    """An error in place of an answer."""

    def __init__(self, code, details):
        self.code = code
        self.details = details


class RogueEtcd:
    """Answers as `said` says: by method a message, bytes, a `Refusal`, or for streams a list of them or a generator.

    All other methods are answered honestly. A stream stays open when all is said.
    """

    def __init__(self, **said):
        self.said = said
        self._server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.max_send_message_length", -1)])
        self._server.add_generic_rpc_handlers((_Handler(self),))
        self.endpoint = ("127.0.0.1", self._server.add_insecure_port("127.0.0.1:0"))
        self._server.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stop(None).wait()

    def answer(self, method, context):
        said = self.said.get(method, honest(method))
        if isinstance(said, Refusal):
            context.abort(said.code, said.details)
        return said if isinstance(said, bytes) else said.SerializeToString()

    def stream(self, method, requests, context):
        next(requests, None)
        said = self.said.get(method, honest(method))
        if isinstance(said, Refusal):
            context.abort(said.code, said.details)
        for each in [said] if isinstance(said, bytes) or hasattr(said, "SerializeToString") else said:
            yield each if isinstance(each, bytes) else each.SerializeToString()
        is_over = Event()
        if context.add_callback(is_over.set):
            is_over.wait(FOR_EVER_S)


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, rogue):
        self._rogue = rogue

    def service(self, details):
        method = details.method.rpartition("/")[2]
        if method in STREAMS:
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: self._rogue.stream(method, requests, context)
            )
        return grpc.unary_unary_rpc_method_handler(lambda _, context: self._rogue.answer(method, context))
