"""Just enough of C++'s shape to measure sources: comments and literals blanked out, function bodies found."""

import re
from typing import Iterator, NamedTuple

_LITERAL = re.compile(
    r"""
    //[^\n]*
  | /\*.*?\*/
  | R"(?P<fence>[^()\s\\]{0,16})\(.*?\)(?P=fence)"
  | "(?:\\.|[^"\\\n])*"
  | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'   # Not the separator of 1'000.
    """,
    re.DOTALL | re.VERBOSE,
)
_PREPROCESSOR = re.compile(r"^[ \t]*\#(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)
_TEMPLATE_OR_ATTRIBUTE = re.compile(r"^\s*(?:template\s*<[^{}]*?>\s*(?=\w)|\[\[.*?\]\]\s*)+", re.DOTALL)
_SCOPE = re.compile(r"^\s*(?:inline\s+|export\s+|typedef\s+)*(namespace|class|struct|union|enum|extern\s*\")")
_LABEL = re.compile(r".*\b(?:public|private|protected)\s*:(?!:)", re.DOTALL)


class Function(NamedTuple):
    first_line: int  # Of its signature, counted from 1.
    lines: int
    signature: str


def blank(text: str, pattern: re.Pattern) -> str:
    """Replaces what matches by spaces; lines stay where they are."""
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def code_only(text: str) -> str:
    """The text without comments, literals and preprocessor lines."""
    return blank(blank(text, _LITERAL), _PREPROCESSOR)


def _is_function(header: str) -> bool:
    plain = _TEMPLATE_OR_ATTRIBUTE.sub("", header)
    return "(" in plain and not _SCOPE.match(plain)


def functions(text: str) -> Iterator[Function]:
    """The outermost functions; what a lambda or a local class holds counts for the function around it."""
    code = code_only(text)
    depth = 0
    function_depth = None
    start = 0  # Of the statement that a brace may belong to.
    signature, first_line = "", 0
    for position, character in enumerate(code):
        if character == "{":
            label = _LABEL.match(code, start, position)
            header = code[label.end() if label else start : position]
            if function_depth is None and _is_function(header):
                function_depth = depth
                signature = " ".join(header.split())
                first_line = code.count("\n", 0, position - len(header.lstrip())) + 1
            depth += 1
            start = position + 1
        elif character == "}":
            depth -= 1
            if function_depth is not None and depth == function_depth:
                last_line = code.count("\n", 0, position) + 1
                yield Function(first_line, last_line - first_line + 1, signature)
                function_depth = None
            start = position + 1
        elif character == ";":
            start = position + 1
