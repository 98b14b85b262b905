"""A step of DeepSpeed's ZeRO-3 with the optimizer's state on NVMe, measured on demand.

Answers as answers.py says. The first request makes the engine:
In:  {"folder", "numel", "tensors", "sub_group_numel"}  Out: {"numel"}: elements that the model has.
Each further one, {}, is a forward and backward pass and a step:   Out: {"seconds", "rss_bytes"}, of the step alone
and of the process so far.
"""

import importlib.metadata
import os
import resource
import sys
import time

from answers import serve


class ZeroStep:
    def __init__(self):
        import torch

        for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}.items():
            os.environ[name] = value
        os.environ["MASTER_PORT"] = str(20000 + os.getpid() % 20000)
        import deepspeed

        deepspeed.init_distributed("gloo")
        self.torch = torch
        self.deepspeed = deepspeed
        self.engine = None
        self.name = f"DeepSpeed {importlib.metadata.version('deepspeed')} ZeRO-3, state on NVMe, bf16"

    def start(self, request):
        torch = self.torch
        width = int((request["numel"] / request["tensors"]) ** 0.5) // 128 * 128  # Other sizes it reads wrongly.
        layers = [torch.nn.Linear(width, width, bias=False) for _ in range(request["tensors"])]
        config = {
            "train_batch_size": 1,
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 1e-2}},
            "zero_optimization": {
                "stage": 3,
                "sub_group_size": request["sub_group_numel"],
                "offload_optimizer": {
                    "device": "nvme",
                    "nvme_path": request["folder"],
                    "buffer_count": 4,
                    # With pipelining it runs out of buffers here, whatever buffer_count is.
                },
            },
            "aio": {"block_size": 1 << 20, "queue_depth": 32, "intra_op_parallelism": 2, "overlap_events": True},
        }
        model = torch.nn.Sequential(*layers)
        self.engine = self.deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
        self.input = torch.randn(1, width, dtype=torch.bfloat16)
        return {"numel": width * width * request["tensors"]}

    def run(self, request):
        if self.engine is None:
            return self.start(request)
        loss = self.engine(self.input).float().pow(2).mean()
        self.engine.backward(loss)
        start = time.monotonic()
        self.engine.step()
        seconds = time.monotonic() - start
        return {"seconds": seconds, "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0}


if __name__ == "__main__":
    sys.exit(serve(ZeroStep))
