#!/usr/bin/env python3
"""Checks that the tests which docs/reliability.md names exist.

usage: check_fault_table.py ROOT
Prints one line for each that does not, and exits with 1 if there is any.
"""

import re
import sys
from pathlib import Path

DECLARATION = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)")
NAME = re.compile(r"`([A-Z]\w+)(?:\.(\w+))?`")
ERRORS = {"IoError", "Corruption", "BudgetExceeded", "ConfigError", "TimedOut"}
SIGNALS = re.compile(r"SIG[A-Z]+")


def main(root: Path) -> int:
    suites: dict[str, set[str]] = {}
    for path in (root / "tests").rglob("*.cpp"):
        for suite, test in DECLARATION.findall(path.read_text()):
            suites.setdefault(suite, set()).add(test)
    named = NAME.findall((root / "docs" / "reliability.md").read_text())
    wanted = {(suite, test) for suite, test in named if suite not in ERRORS and not SIGNALS.fullmatch(suite)}
    missing = [(suite, test) for suite, test in sorted(wanted) if suite not in suites or (test and test not in suites[suite])]
    for suite, test in missing:
        print(f"docs/reliability.md: there is no test {suite}{'.' + test if test else ''}")
    if not wanted:
        print("docs/reliability.md: it names no test")
    return 1 if missing or not wanted else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
