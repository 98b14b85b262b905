#!/usr/bin/env python3
"""Checks the rules that hold for every source: length, layering, threads, and what must not stand in a public tree.

usage: check_sources.py ROOT
Prints one line for each breach, `path:line: what`, and exits with 1 if there is any.
"""

import re
import sys
from pathlib import Path
from typing import Callable, Iterator, NamedTuple

from cxx_text import code_only, functions

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70

FOLDERS = ("offload", "distributed", "optimizer", "queue", "src", "tests", "bench", "examples", "docs", "scripts", "cmake", ".ci")
CXX = {".cpp", ".hpp", ".cu", ".cuh", ".h", ".cc"}
HEADERS = {".hpp", ".cuh", ".h"}
TEXT = CXX | {".py", ".bash", ".sh", ".cmake", ".txt", ".md", ".json", ".in", ".supp", ""}

# Which modules a module's files may include.
LAYERS = {
    "offload": {"offload"},
    "distributed": {"offload", "distributed"},
    "optimizer": {"offload", "distributed", "optimizer"},
    "queue": {"offload", "distributed", "queue"},
    "src": {"offload", "distributed", "optimizer", "queue", "app"},
}

# Who may start threads: each is a member that joins. Tests may too, for they have to.
THREAD_OWNERS = re.compile(
    r"^(offload/(uring_engine|thread_engine|queued_engine|host_stream|parallel)|src/.*(watchdog|data_reader|checkpoint_writer))"
    r"\.(cpp|hpp)$|^tests/"
)


class Breach(NamedTuple):
    path: str
    line: int
    what: str


Check = Callable[[str, str], Iterator[Breach]]


def _matches(path: str, text: str, pattern: str, what: str) -> Iterator[Breach]:
    for match in re.finditer(pattern, text, re.MULTILINE):
        yield Breach(path, text.count("\n", 0, match.start()) + 1, what.format(match.group().strip()))


def _suffix(path: str) -> str:
    return Path(path).suffix


def file_length(path: str, text: str) -> Iterator[Breach]:
    lines = text.count("\n")
    if _suffix(path) in CXX and lines > FILE_LINES_MAX:
        yield Breach(path, lines, f"the file has {lines} lines, {FILE_LINES_MAX} are allowed: split it by idea")


def function_length(path: str, text: str) -> Iterator[Breach]:
    if _suffix(path) not in CXX:
        return
    for function in functions(text):
        if function.lines > FUNCTION_LINES_MAX:
            yield Breach(path, function.first_line,
                         f"a function of {function.lines} lines, {FUNCTION_LINES_MAX} are allowed: {function.signature[:60]}")


def headers(path: str, text: str) -> Iterator[Breach]:
    if _suffix(path) not in HEADERS:
        return
    if "#pragma once" not in text and "HWY_TARGET_TOGGLE" not in text:  # Highway includes some once for each set.
        yield Breach(path, 1, "the header has no #pragma once")
    yield from _matches(path, text, r"^\s*#\s*include\s*[<\"]torch/(torch|all)\.h", "a header includes the umbrella: {}")


def no_libtorch_in_offload(path: str, text: str) -> Iterator[Breach]:
    if re.match(r"(tests/|bench/)?offload/", path):
        yield from _matches(path, text, r"^\s*#\s*include\s*[<\"](torch|ATen|c10|caffe2)/.*", "offload/ knows no LibTorch: {}")


def layering(path: str, text: str) -> Iterator[Breach]:
    match = re.match(r"(?:tests/|bench/)?([a-z]+)/", path)
    if _suffix(path) not in CXX or not match or match.group(1) not in LAYERS:
        return
    module = match.group(1)
    for include in re.finditer(r"^\s*#\s*include\s*<spillway/(\w+)/[^>]*>", text, re.MULTILINE):
        if include.group(1) not in LAYERS[module]:
            yield Breach(path, text.count("\n", 0, include.start(1)) + 1,
                         f"{module} may not include from {include.group(1)}: {include.group().strip()}")
    if path.startswith(module + "/"):
        yield from _matches(path, text, r"^\s*#\s*include\s*\"[^\"]*\"", "include as <spillway/...>: {}")


def threads(path: str, text: str) -> Iterator[Breach]:
    if _suffix(path) not in CXX:
        return
    code = code_only(text)
    starts = r"\bstd::j?thread\b(?!::)|\bstd::async\b|\bpthread_create\b|\bat::parallel_for\b"
    if not THREAD_OWNERS.match(path):
        yield from _matches(path, code, starts, "no threads of one's own outside of their owners: {}")
    if re.search(starts, code):
        yield from _matches(path, code, r"\.detach\(\)", "a detached thread: {}")


def tests_wait_for_events(path: str, text: str) -> Iterator[Breach]:
    if path.startswith("tests/") and _suffix(path) in CXX:
        code = code_only(text)
        yield from _matches(path, code, r"\bsleep_(for|until)\b|\busleep\b|\bnanosleep\b", "a test that sleeps: {}")
        yield from _matches(path, code, r"\bGTEST_SKIP\(\)\s*;", "a test skipped without a reason: {}")
        yield from _matches(path, code, r"\bDISABLED_\w+", "a test that does not run: {}")


def nothing_of_a_machine(path: str, text: str) -> Iterator[Breach]:
    yield from _matches(path, text, r"(?<![\w.\-$})/])/(work|root|tmp|home/\w+)/\w.*", "a path of one machine: {}")
    yield from _matches(path, text, r"\b(pypi\.org|pythonhosted\.org|deb\.debian\.org|archive\.ubuntu\.com)\b",
                        "a registry's address: {}")


def no_loose_ends(path: str, text: str) -> Iterator[Breach]:
    yield from _matches(path, text, r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b(?!\(#\d+\)).*", "a loose end: {}")


def quoted_code(root: Path, path: str, text: str) -> Iterator[Breach]:
    """A code block below `<!-- from some/file -->` has to stand in that file, line by line; indentation may differ."""
    for quote in re.finditer(r"<!-- from (\S+) -->\n```\w*\n(.*?)```", text, re.DOTALL):
        line = text.count("\n", 0, quote.start()) + 1
        source = root / quote.group(1)
        wanted = [part.strip() for part in quote.group(2).splitlines()]
        have = [part.strip() for part in source.read_text().splitlines()] if source.is_file() else []
        if not any(have[at : at + len(wanted)] == wanted for at in range(len(have))):
            yield Breach(path, line, f"this code does not stand in {quote.group(1)}")


CHECKS: tuple[Check, ...] = (file_length, function_length, headers, no_libtorch_in_offload, layering, threads,
                             tests_wait_for_events, nothing_of_a_machine, no_loose_ends)


def sources(root: Path) -> Iterator[Path]:
    for entry in sorted(root.iterdir()):
        if entry.is_file() and entry.suffix in TEXT:
            yield entry
    for folder in FOLDERS:
        for entry in sorted((root / folder).rglob("*")):
            if entry.is_file() and entry.suffix in TEXT and "__pycache__" not in entry.parts and "corpus" not in entry.parts:
                yield entry


def check_tree(root: Path) -> list[Breach]:
    breaches = []
    for path in sources(root):
        text = path.read_text(encoding="utf-8", errors="replace")
        name = path.relative_to(root).as_posix()
        for check in CHECKS:
            breaches.extend(check(name, text))
        breaches.extend(quoted_code(root, name, text))
    return breaches


def main() -> int:
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "offload").is_dir():
        print(__doc__, file=sys.stderr)
        return 2
    breaches = check_tree(Path(sys.argv[1]))
    for breach in breaches:
        print(f"{breach.path}:{breach.line}: {breach.what}")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
