"""How a peer's program talks: a line of JSON on standard output for each line of JSON on standard input."""

import contextlib
import json
import os
import sys


def serve(make_side):
    """Answers with {"ready": side.name} first, then with side.run(request), or {"error": text}."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # What the libraries print is not an answer.
    try:
        with contextlib.redirect_stdout(sys.stderr):
            side = make_side()
        answers.write(json.dumps({"ready": side.name}) + "\n")
    except Exception as error:  # Whatever it is, the other side is to know.
        answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        return 1
    for line in sys.stdin:
        try:
            answers.write(json.dumps(side.run(json.loads(line))) + "\n")
        except Exception as error:
            answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
    return 0
