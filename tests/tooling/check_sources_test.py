#!/usr/bin/env python3
"""Every rule of check_sources.py finds a bad sample and lets a good one pass."""

import tempfile
import unittest
from pathlib import Path

from check_sources import check_tree
from cxx_text import functions


def function(lines: int, opening: str = "void f() {") -> str:
    return opening + "\n" + "  g();\n" * (lines - 2) + "}\n"


class Rules(unittest.TestCase):
    def breaches(self, **files: str) -> list[str]:
        """What is found in a tree of these files; `__` stands for a slash and `_dot_` for a dot."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in files.items():
                path = root / name.replace("__", "/").replace("_dot_", ".")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return [breach.what for breach in check_tree(root)]

    def assert_found(self, expected: str, **files: str) -> None:
        found = self.breaches(**files)
        self.assertEqual(len(found), 1, found)
        self.assertIn(expected, found[0])

    def assert_clean(self, **files: str) -> None:
        self.assertEqual(self.breaches(**files), [])

    def test_file_length(self):
        self.assert_clean(offload__a_dot_cpp="int x;\n" * 400)
        self.assert_found("401 lines", offload__a_dot_cpp="int x;\n" * 401)

    def test_function_length(self):
        self.assert_clean(offload__a_dot_cpp=function(70))
        self.assert_found("71 lines", offload__a_dot_cpp=function(71))

    def test_function_length_inside_namespaces_and_classes(self):
        text = "namespace a {\nclass B final : public C {\n public:\n" + function(71, "  int f(int x) const noexcept {") + "};\n}\n"
        self.assert_found("71 lines", queue__a_dot_hpp="#pragma once\n" + text)

    def test_headers_keep_off_the_umbrella(self):
        self.assert_clean(optimizer__a_dot_cpp="#include <torch/torch.h>\n")
        self.assert_found("umbrella", optimizer__a_dot_hpp="#pragma once\n#include <torch/torch.h>\n")
        self.assert_found("umbrella", tests__support__a_dot_hpp='#pragma once\n#include "torch/torch.h"\n')

    def test_headers_are_guarded(self):
        self.assert_found("#pragma once", offload__a_dot_hpp="int x;\n")
        self.assert_clean(optimizer__a_dot_hpp="#if defined(A_INL) == defined(HWY_TARGET_TOGGLE)\n#endif\n")

    def test_offload_knows_no_libtorch(self):
        for header in ("ATen/core/Tensor.h", "c10/util/Half.h", "torch/types.h"):
            self.assert_found("no LibTorch", offload__a_dot_cpp=f"#include <{header}>\n")
            self.assert_found("no LibTorch", tests__offload__a_dot_cpp=f"#include <{header}>\n")
        self.assert_clean(queue__a_dot_cpp="#include <ATen/core/Tensor.h>\n")

    def test_layers(self):
        include = "#include <spillway/{}/a.hpp>\n".format
        self.assert_clean(optimizer__a_dot_cpp=include("offload") + include("distributed") + include("optimizer"))
        self.assert_clean(src__a_dot_cpp=include("queue") + include("optimizer"))
        self.assert_found("offload may not", offload__a_dot_cpp=include("distributed"))
        self.assert_found("optimizer may not", optimizer__a_dot_cpp=include("queue"))
        self.assert_found("queue may not", queue__a_dot_cpp=include("optimizer"))
        self.assert_found("queue may not", tests__queue__a_dot_cpp=include("optimizer"))
        self.assert_found("distributed may not", distributed__a_dot_cpp=include("app"))

    def test_includes_name_the_project(self):
        self.assert_found("include as", offload__a_dot_cpp='#include "b.hpp"\n')

    def test_threads_have_owners(self):
        thread = "std::jthread worker_;\n"
        self.assert_clean(offload__uring_engine_dot_cpp=thread, tests__offload__a_dot_cpp=thread)
        self.assert_clean(queue__a_dot_cpp="auto n = std::thread::hardware_concurrency(); // std::thread is not started\n")
        self.assert_found("no threads", queue__a_dot_cpp=thread)
        self.assert_found("no threads", src__a_dot_cpp="auto f = std::async(g);\n")

    def test_no_thread_is_detached(self):
        self.assert_clean(queue__a_dot_cpp="auto keys = output.detach();\n")
        self.assert_found("detached", offload__uring_engine_dot_cpp="std::thread(f).detach();\n")

    def test_tests_neither_sleep_nor_skip_in_silence(self):
        self.assert_found("sleeps", tests__offload__a_dot_cpp="std::this_thread::sleep_for(1s);\n")
        self.assert_found("without a reason", tests__offload__a_dot_cpp="GTEST_SKIP();\n")
        self.assert_found("does not run", tests__offload__a_dot_cpp="TEST(A, DISABLED_B)\n")
        self.assert_clean(tests__offload__a_dot_cpp='GTEST_SKIP() << "no GPU";\n')

    def test_nothing_of_a_machine(self):
        for path in ("/ro" + "ot/x", "/wo" + "rk/main", "/t" + "mp/x", "/ho" + "me/ann/x"):
            self.assert_found("one machine", docs__a_dot_md=f"see {path}\n")
        for folder in ("work", "tmp", "root"):
            self.assert_clean(docs__a_dot_md=f"see docs/{folder}/x, $TMPDIR/{folder}/x and ../{folder}/x\n")
        self.assert_found("registry", scripts__bootstrap="pip --index-url https://py" + "pi.org/simple\n")

    def test_quoted_code_stands_where_it_says(self):
        example = "int main() {\n  f();\n  g();\n}\n"
        quote = "<!-- from examples/a.cpp -->\n```cpp\n{}```\n".format
        self.assert_clean(examples__a_dot_cpp=example, README_dot_md=quote("f();\ng();\n"))
        self.assert_found("does not stand", examples__a_dot_cpp=example, README_dot_md=quote("f();\nh();\n"))
        self.assert_found("does not stand", README_dot_md=quote("f();\n"))

    def test_no_loose_ends(self):
        self.assert_found("loose end", docs__a_dot_md="TO" + "DO: finish\n")
        self.assert_clean(docs__a_dot_md="TO" + "DO(#12): finish\n")


class Functions(unittest.TestCase):
    def lengths(self, text: str) -> list[int]:
        return [function.lines for function in functions(text)]

    def test_braces_in_literals_and_comments_do_not_count(self):
        text = "void f() {\n  g('{', \"{\", R\"x({ \" )x\"); // {\n  /* { */ int n = 1'000;\n}\nvoid h() {}\n"
        self.assertEqual(self.lengths(text), [4, 1])

    def test_lambdas_count_for_their_function(self):
        self.assertEqual(self.lengths("void f() {\n  run([&] {\n    g();\n  });\n}\n"), [5])

    def test_types_and_initialisers_are_no_functions(self):
        text = "struct A {\n  int x = f(1);\n};\nenum class B { C };\nconst int d[] = {\n  1,\n};\nclass alignas(64) E {\n};\n"
        self.assertEqual(self.lengths(text), [])

    def test_templates_attributes_and_initialiser_lists(self):
        text = ("template <typename T>\n[[nodiscard]] T f(T x) {\n  return x;\n}\n"
                "A::A(int x)\n    : x_(x),\n      y_(x) {\n}\n")
        self.assertEqual(self.lengths(text), [4, 4])

    def test_macros_are_passed_over(self):
        self.assertEqual(self.lengths("#define F(x) {  \\\n  {\nvoid f() {\n}\n"), [2])


if __name__ == "__main__":
    unittest.main()
