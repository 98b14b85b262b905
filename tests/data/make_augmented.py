#!/usr/bin/env python3
"""Writes golden/21_augmentations.safetensors: what torchvision makes of an image, with the parameters that it was given.

usage: make_augmented.py FILE
Operations are those of torchvision.transforms.functional on a float32 image in [0, 1]. Each output is named by its
operation and parameters. Deciles of RandomResizedCrop.get_params are of 200,000 draws.
"""

import json
import struct
import sys

import numpy as np
import torch
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms import functional as F

HEIGHT, WIDTH, SIDE = 40, 52, 24
# x, y, width, height: shrinks, grows, does both, is at an edge, is one pixel.
BOXES = [(0, 0, 52, 40), (7, 5, 30, 33), (11, 3, 12, 9), (40, 30, 12, 10), (2, 20, 49, 11), (17, 18, 1, 1)]


def image() -> torch.Tensor:
    """[3, height, width] uint8 with smooth parts, edges, greys, pure colours and noise."""
    rng = np.random.default_rng(3)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    planes = [120 + 90 * np.sin(x / a + c) * np.cos(y / b) for a, b, c in ((5, 7, 0), (9, 4, 1), (6, 11, 2))]
    made = np.stack(planes) + rng.normal(0, 12, (3, HEIGHT, WIDTH))
    made[:, :8, :8] = made[:1, :8, :8]
    for index, colour in enumerate(((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (0, 0, 0), (255, 255, 255))):
        made[:, 30:36, 4 * index : 4 * index + 4] = np.array(colour)[:, None, None]
    return torch.from_numpy(made.clip(0, 255).astype(np.uint8))


def outputs(source: torch.Tensor) -> dict[str, torch.Tensor]:
    full = source.float() / 255
    made = {}
    for x, y, width, height in BOXES:
        crop = F.resized_crop(full, y, x, height, width, [SIDE, SIDE], antialias=True)
        made[f"crop_{x}_{y}_{width}_{height}"] = crop
    start = made["crop_7_5_30_33"]
    made["flip"] = F.hflip(start)
    for factor in (0.2, 1.0, 1.7):
        made[f"brightness_{factor}"] = F.adjust_brightness(start, factor)
        made[f"contrast_{factor}"] = F.adjust_contrast(start, factor)
        made[f"saturation_{factor}"] = F.adjust_saturation(start, factor)
    for shift in (-0.5, -0.1, 0.0, 0.07, 0.2, 0.5):
        made[f"hue_{shift}"] = F.adjust_hue(start, shift)
    made["grayscale"] = F.rgb_to_grayscale(start, num_output_channels=3)
    for sigma in (0.1, 0.8, 2.0):
        made[f"blur_3_{sigma}"] = F.gaussian_blur(start, [3, 3], [sigma, sigma])
        made[f"blur_23_{sigma}"] = F.gaussian_blur(start, [23, 23], [sigma, sigma])
    for threshold in (0.3, 0.5):
        made[f"solarize_{threshold}"] = F.solarize(start, threshold)
    chain = F.adjust_hue(F.adjust_contrast(F.adjust_saturation(F.adjust_brightness(F.hflip(start), 0.7), 1.5), 0.6), 0.1)
    made["chain"] = F.solarize(F.gaussian_blur(F.rgb_to_grayscale(chain, 3), [3, 3], [1.3, 1.3]), 0.5)
    return made


def crop_deciles() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    shape = torch.empty(3, 375, 500)
    drawn = np.array([RandomResizedCrop.get_params(shape, [0.2, 1.0], [3 / 4, 4 / 3]) for _ in range(200_000)], np.float64)
    top, left, height, width = drawn.T
    values = {"area": height * width / (375 * 500), "ratio": width / height, "left": left, "top": top}
    levels = np.arange(1, 10) / 10
    return {f"decile_{name}": torch.from_numpy(np.quantile(value, levels)) for name, value in values.items()}


def write_safetensors(path: str, tensors: dict[str, torch.Tensor]) -> None:
    header, data = {}, b""
    for name, tensor in tensors.items():
        kind = {torch.uint8: "U8", torch.float32: "F32", torch.float64: "F64"}[tensor.dtype]
        raw = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    source = image()
    made = {name: (255 * value).round().to(torch.uint8) for name, value in outputs(source).items()}
    write_safetensors(sys.argv[1], {"image": source.permute(1, 2, 0)} | made | crop_deciles())
    return 0


if __name__ == "__main__":
    sys.exit(main())
