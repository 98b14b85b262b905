"""A torchvision DataLoader with SimCLR's augmentation at 224 pixels, measured on demand.

Answers as answers.py says. The first request makes the loader:
In:  {"folder", "workers", "batch", "batches"}  Out: {"images"}: that the folder has.
Each further one, {}, takes batches:            Out: {"images_per_s"}: over so many batches, after those that were ready.
Each image is decoded once and gives two views.
"""

import sys
import time

from answers import serve

PREFETCH = 2  # Batches a worker, the DataLoader's default.


class TwoViews:
    def __init__(self, transform):
        self.transform = transform

    def __call__(self, image):
        return self.transform(image), self.transform(image)


class Loader:
    def __init__(self):
        import torch
        import torchvision

        self.torch = torch
        self.torchvision = torchvision
        self.batches = None
        self.name = f"torchvision {torchvision.__version__} DataLoader"

    def start(self, request):
        T = self.torchvision.transforms
        transform = T.Compose(
            [
                T.RandomResizedCrop(224, scale=(0.08, 1.0)),
                T.RandomHorizontalFlip(),
                T.RandomApply([T.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
                T.RandomGrayscale(p=0.2),
                T.RandomApply([T.GaussianBlur(23, sigma=(0.1, 2.0))], p=0.5),
                T.ToTensor(),
            ]
        )
        images = self.torchvision.datasets.ImageFolder(request["folder"], TwoViews(transform))
        self.loader = self.torch.utils.data.DataLoader(
            images, batch_size=request["batch"], shuffle=True, drop_last=True, num_workers=request["workers"],
            persistent_workers=True, prefetch_factor=PREFETCH)
        self.ready = PREFETCH * request["workers"]
        self.count = request["batches"]
        self.size = request["batch"]
        self.batches = self.endless()
        return {"images": len(images)}

    def endless(self):
        while True:
            yield from self.loader

    def run(self, request):
        if self.batches is None:
            return self.start(request)
        for _ in range(self.ready):
            next(self.batches)
        start = time.perf_counter()
        for _ in range(self.count):
            next(self.batches)
        return {"images_per_s": self.count * self.size / (time.perf_counter() - start)}


if __name__ == "__main__":
    sys.exit(serve(Loader))
