"""DeepSpeed's async_io, measured on demand.

Answers as answers.py says.
In:  {"op": "read" | "write", "path", "bytes", "block_bytes", "depth", "threads", "overlap_events"}
Out: {"seconds", "cpu_s"}, both of the transfer alone.
"""

import importlib.metadata
import os
import resource
import sys
import time

from answers import serve

CHECKED_BYTES = 4096


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def file_bytes(path, offset):
    with open(path, "rb", buffering=0) as file:
        return os.pread(file.fileno(), CHECKED_BYTES, offset)


class AsyncIo:
    def __init__(self):
        import torch
        from deepspeed.ops.op_builder import AsyncIOBuilder

        self.torch = torch
        self.op = AsyncIOBuilder().load(verbose=False)
        self.handles = {}
        self.buffer = None
        self.name = f"DeepSpeed {importlib.metadata.version('deepspeed')} async_io, torch {torch.__version__}"

    def handle(self, request):
        setting = (request["block_bytes"], request["depth"], False, request["overlap_events"], request["threads"])
        if setting not in self.handles:
            self.handles.clear()  # A handle owns threads.
            self.handles[setting] = self.op.aio_handle(*setting)
        return self.handles[setting]

    def memory(self, handle, size):
        if self.buffer is None or self.buffer.numel() != size:
            self.buffer = None
            self.owner = self.op.aio_handle(1 << 20, 8, False, True, 1)
            self.buffer = self.owner.new_cpu_locked_tensor(size, self.torch.empty(0, dtype=self.torch.uint8))
            self.buffer.copy_(self.torch.randint(0, 256, (size,), dtype=self.torch.uint8))
        return self.buffer

    def check(self, path, size):
        """What was moved has to be the same on both sides, at either end."""
        for offset in (0, size - CHECKED_BYTES):
            mine = bytes(self.buffer[offset : offset + CHECKED_BYTES].numpy())
            if mine != file_bytes(path, offset):
                raise RuntimeError(f"memory and file differ at offset {offset}")

    def run(self, request):
        handle = self.handle(request)
        buffer = self.memory(handle, request["bytes"])
        call = handle.sync_pread if request["op"] == "read" else handle.sync_pwrite
        cpu, start = cpu_seconds(), time.monotonic()
        done = call(buffer, request["path"], 0)
        cost = {"seconds": time.monotonic() - start, "cpu_s": cpu_seconds() - cpu}
        if done != 1:
            raise RuntimeError(f"{call.__name__} returned {done}")
        self.check(request["path"], request["bytes"])
        return cost


if __name__ == "__main__":
    sys.exit(serve(AsyncIo))
