"""An NFS client in user space (libnfs): the kernel of a test machine may have none."""

import ctypes
import os
import subprocess
import sys

room, scripts = sys.argv[1:]
try:
    nfs = ctypes.CDLL("libnfs.so.13")
except OSError:
    sys.exit(77)
nfs.nfs_init_context.restype = ctypes.c_void_p
nfs.nfs_get_error.restype = ctypes.c_char_p
nfs.nfs_parse_url_dir.restype = ctypes.c_void_p
context = ctypes.c_void_p(nfs.nfs_init_context())
PIECE = 1 << 16


def call(name, *arguments):
    result = getattr(nfs, name)(context, *arguments)
    if result < 0:
        sys.exit(f"{name}: {result} {nfs.nfs_get_error(context)}")
    return result


def path(name):
    return ctypes.c_char_p(name.encode())


def opened(name, how, *arguments):
    file = ctypes.c_void_p()
    call(how, path(name), *arguments, ctypes.byref(file))
    return file


def read(file, offset):
    room = ctypes.create_string_buffer(PIECE)
    count = call("nfs_pread", file, ctypes.c_uint64(offset), ctypes.c_uint64(PIECE), room)
    return room.raw[:count]


def write(file, offset, data):
    call("nfs_pwrite", file, ctypes.c_uint64(offset), ctypes.c_uint64(len(data)), ctypes.c_char_p(data))


# The ports are in the address, so that the client needs no portmapper.
address = f"nfs://127.0.0.1{room}/pool?version=3&nfsport=12049&mountport=12050"
nfs.nfs_parse_url_dir(context, path(address))
call("nfs_mount", path("127.0.0.1"), path(f"{room}/pool"))
with open(f"{room}/b/d/large", "rb") as large:
    expected = large.read()
kept = opened("/d/large", "nfs_open", os.O_RDONLY)
assert read(kept, 0) == expected[:PIECE]
made = opened("/d/new", "nfs_creat", 0o644)
write(made, 0, b"hello")

subprocess.run(["sh", f"{scripts}/stop.sh"], check=True)
branches = f"{room}/b=RW,id=two:{room}/a=RW,id=one"
subprocess.run(["sh", "-c", '. "$0/servers.sh"', scripts, branches], check=True)

for offset in range(0, len(expected), PIECE):
    assert read(kept, offset) == expected[offset : offset + PIECE], offset
write(made, 5, b" again")
call("nfs_fsync", made)
call("nfs_rename", path("/d/new"), path("/d/newer"))
there = [name for name in ("a/d/newer", "b/d/newer") if os.path.exists(f"{room}/{name}")]
assert len(there) == 1, there
with open(f"{room}/{there[0]}", "rb") as newer:
    assert newer.read() == b"hello again"
call("nfs_unlink", path("/d/one"))
assert not os.path.exists(f"{room}/a/d/one")
