"""Steps of DeepSpeed's CPUAdam (decoupled decay), measured on demand.

Answers as answers.py says. A request with "numel" makes weights, gradients and state anew:
In:  {"numel", "tensors", "bf16", "bf16_state", "clips"}, the last for the whole step pass by pass: gradients to float32,
norm with the overflow check, clipping, the update of float32 masters, weights to bf16.   Out: {"numel"}
Each other one, {}, is a step:                  Out: {"seconds"}, from gradients to weights
{"check": true} measures nothing:               Out: {"mean_abs"}: of the weights, to compare sides by.
"""

import importlib.metadata
import math
import sys
import time

from answers import serve

LR, DECAY, MAX_NORM = 1e-3, 1e-2, 1.0


class CpuAdam:
    def __init__(self):
        import torch
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        self.torch = torch
        self.make = DeepSpeedCPUAdam
        DeepSpeedCPUAdam([torch.nn.Parameter(torch.zeros(1))])  # Compiles and loads the op.
        self.name = f"DeepSpeed {importlib.metadata.version('deepspeed')} CPUAdam"

    def start(self, request):
        torch = self.torch
        self.optimizer = self.weights = self.gradients = self.wide = None
        dtype = torch.bfloat16 if request["bf16"] else torch.float32
        numel = request["numel"] // request["tensors"]
        self.clips = request["clips"]
        self.weights = []
        self.gradients = []
        for t in range(request["tensors"]):
            shift = 1e-6 * t
            self.weights.append(torch.nn.Parameter(torch.linspace(-0.5 + shift, 0.5, numel).to(dtype)))
            self.gradients.append(torch.linspace(1e-3, -2e-3 + shift, numel).to(dtype))
        if self.clips:
            self.wide = [torch.nn.Parameter(weight.detach().float()) for weight in self.weights]
            for master in self.wide:
                master.grad = torch.zeros_like(master)
        else:
            self.wide = self.weights
            for weight, gradient in zip(self.weights, self.gradients):
                weight.grad = gradient
        self.optimizer = self.make(
            self.wide, lr=LR, weight_decay=DECAY, adamw_mode=True, fp32_optimizer_states=not request["bf16_state"]
        )
        return {"numel": numel * request["tensors"]}

    def step(self):
        if not self.clips:
            self.optimizer.step()
            return
        torch = self.torch
        gradients = [master.grad for master in self.wide]
        torch._foreach_copy_(gradients, self.gradients)
        norm = torch.stack(torch._foreach_norm(gradients)).norm().item()
        if not math.isfinite(norm):
            raise ValueError("a gradient of the bench is not finite")
        torch._foreach_mul_(gradients, min(1.0, MAX_NORM / (norm + 1e-6)))
        self.optimizer.step()
        torch._foreach_copy_([weight.data for weight in self.weights], [master.data for master in self.wide])

    def run(self, request):
        if "numel" in request:
            return self.start(request)
        if "check" in request:
            total = sum(weight.detach().double().abs().sum().item() for weight in self.weights)
            return {"mean_abs": total / sum(weight.numel() for weight in self.weights)}
        with self.torch.no_grad():
            start = time.monotonic()
            self.step()
            return {"seconds": time.monotonic() - start}


if __name__ == "__main__":
    sys.exit(serve(CpuAdam))
