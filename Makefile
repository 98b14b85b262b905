# The commands; scripts/bootstrap does the work and fetches what is missing (`scripts/bootstrap help`).
BOOTSTRAP := scripts/bootstrap
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
DEMO_OUT ?= runs/demo
DEMO_FLAGS ?=
export LIBTORCH TORCH_CUDA_ARCH_LIST SPILLWAY_CACHE

.PHONY: help demo test build bench peers test-asan test-tsan fuzz format format-check lint install clean

help:
	@echo "make demo          set up, build, and train MoCo on MNIST-5k with state and bank on NVMe, into $(DEMO_OUT)"
	@echo "make test          set up, build everything, and run every test"
	@echo "make build         set up and build everything"
	@echo "make bench         build and run the micro-benchmarks and 'spillway bench io'"
	@echo "make peers         install what 'spillway bench' measures beside: fio, DeepSpeed, torchvision"
	@echo "make test-asan     the tests of offload/ under address and undefined-behaviour sanitizer"
	@echo "make test-tsan     the same under thread sanitizer"
	@echo "make fuzz          every fuzzer for FUZZ_SECONDS ($(FUZZ_SECONDS)) seconds"
	@echo "make format        format every source; make format-check only looks"
	@echo "make lint          clang-tidy on offload/"
	@echo "make install       into PREFIX ($(PREFIX))"
	@echo "make clean         remove build/; the cache of fetched files stays"
	@echo
	@echo "LIBTORCH=path      use a LibTorch of your own in place of the fetched one"
	@echo "SPILLWAY_CACHE=path  where fetched files are kept (the default is ~/.cache/spillway)"

demo:
	@$(BOOTSTRAP) setup
	@$(BOOTSTRAP) build default spillway
	@build/default/src/spillway train --config examples/demo.json --out $(DEMO_OUT) $(DEMO_FLAGS)

test:
	@$(BOOTSTRAP) setup
	@$(BOOTSTRAP) run_tests default

build:
	@$(BOOTSTRAP) setup
	@$(BOOTSTRAP) build default

bench:
	@$(BOOTSTRAP) build default
	@set -e; for program in $$(find build/default/bench -name '*_bench' -type f | sort); do \
	  echo "== $$(basename $$program)"; $$program; done
	@build/default/src/spillway bench io

peers:
	@$(BOOTSTRAP) libtorch
	@$(BOOTSTRAP) peers

test-asan:
	@$(BOOTSTRAP) run_tests asan

test-tsan:
	@$(BOOTSTRAP) run_tests tsan

fuzz:
	@$(BOOTSTRAP) fuzz $(FUZZ_SECONDS)

format:
	@$(BOOTSTRAP) format -i

format-check:
	@$(BOOTSTRAP) format --dry-run -Werror

lint:
	@$(BOOTSTRAP) lint

install:
	@$(BOOTSTRAP) build default
	@$(BOOTSTRAP) install_to $(PREFIX)

clean:
	@rm -rf build
