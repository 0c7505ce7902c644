#!/usr/bin/env python3
"""Write holdfast.coordination's etcd_messages.py and etcd_messages.pyi from etcd.proto, or see if they are current.

    python scripts/etcd_messages.py [--check]

It takes the package grpcio-tools, of any version: what it writes depends on etcd.proto alone.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = Path(__file__).parent.parent / "src/holdfast/coordination"
SOURCE = HOME / "etcd.proto"
HEADLINE = "The messages of etcd's API. scripts/etcd_messages.py made this from etcd.proto: change that."
COLUMNS = 100

TYPES = {
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_ENUM: "int",
    FieldDescriptorProto.TYPE_INT64: "int",
    FieldDescriptorProto.TYPE_STRING: "str",
    FieldDescriptorProto.TYPE_UINT64: "int",
}
"""What Python has for protobuf's types. An enumeration is a number: a newer etcd may send one that has no name here."""


def main(words: list[str]) -> None:
    file = parse(SOURCE)
    wanted = {HOME / "etcd_messages.py": module(file), HOME / "etcd_messages.pyi": stub(file)}
    for path, text in wanted.items():
        if words != ["--check"]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path.name} is not what {SOURCE.name} says; run scripts/etcd_messages.py")


def parse(source: Path) -> FileDescriptorProto:
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "descriptors"
        words = ["protoc", f"--proto_path={source.parent}", f"--descriptor_set_out={out}", str(source)]
        if protoc.main(words):
            sys.exit(f"protoc cannot read {source}")
        (file,) = FileDescriptorSet.FromString(out.read_bytes()).file
    for message in file.message_type:
        for field in message.field:
            field.ClearField("json_name")  # follows from the name
    return file


def module(file: FileDescriptorProto) -> str:
    data = base64.b64encode(file.SerializeToString(deterministic=True)).decode()
    lines = [data[start : start + COLUMNS] for start in range(0, len(data), COLUMNS)]
    return "\n".join(
        [
            f'"""{HEADLINE}"""',
            "",
            "from __future__ import annotations",
            "",
            "from holdfast.coordination.protobuf import Schema",
            "",
            "schema = Schema(",
            f'    "{file.package}",',
            *(f'    "{line}"' for line in lines[:-1]),
            f'    "{lines[-1]}",',
            ")",
            "",
            "__getattr__ = schema.message",
            "",
        ]
    )


def stub(file: FileDescriptorProto) -> str:
    """What holdfast uses of the classes, for type checkers."""
    lines = [
        f"# {HEADLINE}",
        "",
        "from collections.abc import Iterable, MutableSequence",
        "",
        "from holdfast.coordination.protobuf import Schema",
        "",
        "schema: Schema",
        "",
    ]
    for message in file.message_type:
        body = [
            *(f"    {value.name}: int" for enum in message.enum_type for value in enum.value),
            *(f"    {field.name}: {attribute(field)}" for field in message.field),
            *constructor(message.field),
        ]
        lines += [f"class {message.name}:", *body, ""] if body else [f"class {message.name}: ...", ""]
    return "\n".join(lines)


def constructor(fields: list[FieldDescriptorProto]) -> Iterator[str]:
    if fields:
        yield "    def __init__("
        yield "        self,"
        yield "        *,"
        for field in fields:
            yield f"        {field.name}: {argument(field)} = ...,"
        yield "    ) -> None: ..."


def attribute(field: FieldDescriptorProto) -> str:
    of = TYPES[field.type] if field.type in TYPES else field.type_name.rpartition(".")[2]
    return f"MutableSequence[{of}]" if field.label == FieldDescriptorProto.LABEL_REPEATED else of


def argument(field: FieldDescriptorProto) -> str:
    of = attribute(field)
    return of.replace("MutableSequence", "Iterable", 1) if of.startswith("MutableSequence") else f"{of} | None"


if __name__ == "__main__":
    main(sys.argv[1:])
