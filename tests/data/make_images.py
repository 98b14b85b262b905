#!/usr/bin/env python3
"""Writes image files of every kind that the decoders know, and what Pillow makes of each.

usage: make_images.py FOLDER [--random N]
Without --random it writes the files that stand in tests/data/images; with it, N files with drawn sizes, qualities and
kinds, the same for the same N. expected.csv has a line a file: name, shrink, width, height, channels, CRC-32 of the
pixels, row-major. Upright as Exif says; grey in one channel, all else in RGB; 16 bits by their high byte.
"""

import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, PngImagePlugin

WIDTH, HEIGHT = 37, 29  # Neither is a multiple of a block.


def scene(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    """Soft colours with edges and some noise: [height, width, 3] uint8."""
    y, x = np.mgrid[0:height, 0:width]
    planes = []
    for _ in range(3):
        a, b, c = rng.uniform(0.02, 0.4, 3)
        planes.append(np.sin(a * x + c) + np.cos(b * y) + (x + y > (width + height) * rng.uniform(0.3, 0.7)))
    image = 60 * np.stack(planes, axis=2) + 90 + rng.normal(0, 6, (height, width, 3))
    return image.clip(0, 255).astype(np.uint8)


def with_orientation(value: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = value
    return exif.tobytes()


def png_bytes(width: int, height: int, depth: int, colour: int, rows: list[bytes], interlaced: bool = False,
              before: bytes = b"") -> bytes:
    """A PNG by hand, for kinds that Pillow does not write."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 1 if interlaced else 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def adam7(pixels: np.ndarray) -> list[bytes]:
    """The rows of the seven passes of [height, width, bytes a pixel]."""
    rows = []
    for y0, x0, dy, dx in ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)):
        part = pixels[y0::dy, x0::dx]
        if part.size:
            rows.extend(row.tobytes() for row in part)
    return rows


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def jpeg_files(colour: Image.Image) -> dict[str, bytes]:
    grey = colour.convert("L")
    files = {
        "baseline_420.jpg": encoded(colour, "JPEG", quality=90, subsampling=2),
        "baseline_422.jpg": encoded(colour, "JPEG", quality=75, subsampling=1),
        "baseline_444.jpg": encoded(colour, "JPEG", quality=95, subsampling=0),
        "progressive.jpg": encoded(colour, "JPEG", quality=85, progressive=True),
        "restart_markers.jpg": encoded(colour, "JPEG", quality=85, restart_marker_blocks=2),
        "grey.jpg": encoded(grey, "JPEG", quality=90),
        "grey_progressive.jpg": encoded(grey, "JPEG", quality=60, progressive=True),
        "cmyk.jpg": encoded(Image.merge("CMYK", (*colour.split(), grey)), "JPEG", quality=90),
        "rgb.jpg": encoded(colour, "JPEG", quality=90, keep_rgb=True),
        "one_pixel.jpg": encoded(colour.crop((3, 3, 4, 4)), "JPEG", quality=90),
        "wide.jpg": encoded(grey.resize((20000, 20)), "JPEG", quality=30),
    }
    for value in range(1, 9):
        files[f"exif_{value}.jpg"] = encoded(colour, "JPEG", quality=80, exif=with_orientation(value))
    return files


def png_files(colour: Image.Image, pixels: np.ndarray) -> dict[str, bytes]:
    width, height = colour.size
    grey = colour.convert("L")
    alpha = Image.fromarray(pixels[:, :, 0])
    rgba, la = colour.copy(), grey.copy()
    rgba.putalpha(alpha)
    la.putalpha(alpha)
    palette = colour.quantize(17)
    wide16 = np.stack([pixels.astype(">u2") * 257, (pixels[::-1].astype(">u2") * 199)], axis=0)
    orientation = PngImagePlugin.PngInfo()
    files = {
        "rgb.png": encoded(colour, "PNG"),
        "grey.png": encoded(grey, "PNG"),
        "rgba.png": encoded(rgba, "PNG"),
        "grey_alpha.png": encoded(la, "PNG"),
        "palette.png": encoded(palette, "PNG"),
        "palette_4bit.png": encoded(colour.quantize(11), "PNG", bits=4),
        "palette_transparent.png": encoded(palette, "PNG", transparency=bytes(range(0, 255, 15))),
        "grey_transparent.png": encoded(grey, "PNG", transparency=90),
        "rgb_transparent.png": encoded(colour, "PNG", transparency=tuple(int(v) for v in pixels[0, 0])),
        "one_bit.png": encoded(grey.convert("1"), "PNG"),
        "grey_16bit.png": png_bytes(width, height, 16, 0, [row.tobytes() for row in wide16[1][:, :, 1]]),
        "rgb_16bit.png": png_bytes(width, height, 16, 2, [row.tobytes() for row in wide16[1]]),
        "rgb_interlaced.png": png_bytes(width, height, 8, 2, adam7(pixels), True),
        "rgb_16bit_interlaced.png": png_bytes(width, height, 16, 2, adam7(wide16[0]), True),
        "grey_interlaced.png": png_bytes(width, height, 8, 0, adam7(np.asarray(grey)[:, :, None]), True),
        "one_pixel.png": encoded(colour.crop((2, 2, 3, 3)), "PNG"),
        "wide.png": encoded(grey.resize((20000, 20)).quantize(8), "PNG"),
        "exif_6.png": encoded(colour, "PNG", pnginfo=orientation, exif=with_orientation(6)),
    }
    for bits in (2, 4):
        per_byte, top = 8 // bits, (1 << bits) - 1
        levels = (np.asarray(grey)[:, : width // per_byte * per_byte] >> (8 - bits)) & top
        packed = sum(levels[:, i::per_byte] << (bits * (per_byte - 1 - i)) for i in range(per_byte)).astype(np.uint8)
        files[f"grey_{bits}bit.png"] = png_bytes(levels.shape[1], height, bits, 0, [row.tobytes() for row in packed])
    return files


def random_files(count: int) -> dict[str, bytes]:
    files = {}
    for number in range(count):
        rng = np.random.default_rng(number)
        width, height = (int(side) for side in rng.integers(1, 200, 2))
        pixels = scene(rng, width, height)
        kinds = jpeg_files(Image.fromarray(pixels)) | png_files(Image.fromarray(pixels), pixels)
        for name in rng.choice(sorted(kinds), 4, replace=False):
            files[f"{number:03}_{name}"] = kinds[name]
    return files


def pixels_of(data: bytes, shrink: int) -> np.ndarray | None:
    """[height, width, channels] as Pillow decodes them."""
    image = Image.open(io.BytesIO(data))
    if shrink > 1:
        sides = tuple(-(-side // shrink) for side in image.size)
        image.draft(None, tuple(max(1, side // shrink) for side in image.size))
        if image.size != sides:  # Its draft mode does not go there.
            return None
    image = ImageOps.exif_transpose(image)
    if image.mode == "I;16":
        return (np.asarray(image) >> 8).astype(np.uint8)[:, :, None]
    grey = image.mode in ("L", "LA", "1")
    pixels = np.asarray(image.convert("L" if grey else "RGB"))
    return pixels[:, :, None] if grey else pixels


def main() -> int:
    if len(sys.argv) not in (2, 4):
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) == 4:
        files = random_files(int(sys.argv[3]))
    else:
        pixels = scene(np.random.default_rng(0), WIDTH, HEIGHT)
        colour = Image.fromarray(pixels)
        files = jpeg_files(colour) | png_files(colour, pixels)
    lines = []
    for name, data in sorted(files.items()):
        (folder / name).write_bytes(data)
        shrinks = (1, 2, 4, 8) if name.endswith(".jpg") and "exif" not in name and "pixel" not in name else (1,)
        for shrink in shrinks:
            if (pixels := pixels_of(data, shrink)) is not None:
                height, width, channels = pixels.shape
                lines.append(f"{name},{shrink},{width},{height},{channels},{zlib.crc32(pixels.tobytes())}\n")
    (folder / "expected.csv").write_text("".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
