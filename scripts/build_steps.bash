# How scripts/bootstrap configures, builds and runs. Sourced by it; uses its variables and functions.

# A CMake that is new enough, on stdout: the system's, or one from its wheel.
cmake_program() {
  local have
  have=$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p')
  if [ -n "$have" ] && [ "$(printf '%s\n' "$cmake_minimum" "$have" | sort -V | head -n 1)" = "$cmake_minimum" ]; then
    command -v cmake
  else
    program_from_wheel cmake "$cmake_wheel"
  fi
}

ctest_program() { echo "$(dirname -- "$(cmake_program)")/ctest"; }

# What CMake is told beside the preset, in the array `arguments`. Presets without LibTorch need neither it nor nvcc.
collect_arguments() {
  local toolkit version
  arguments=()
  case "$1" in
    asan | tsan) ;;
    fuzz)
      version=$(clang_version clang++ libclang-rt-VERSION-dev)
      require_packages "clang-$version" "libclang-rt-$version-dev"
      arguments+=("-DCMAKE_CXX_COMPILER=clang++-$version")
      ;;
    *)
      libtorch
      cuda
      toolkit=$(cuda_folder)
      arguments+=("-DTorch_DIR=$(libtorch_folder)/share/cmake/Torch")
      if [ -n "$toolkit" ]; then
        arguments+=("-DSPILLWAY_CUDA=ON" "-DCMAKE_CUDA_COMPILER=$toolkit/bin/nvcc" "-DCUDAToolkit_ROOT=$toolkit"
          "-DTORCH_CUDA_ARCH_LIST=${TORCH_CUDA_ARCH_LIST:-7.5}")
      else
        arguments+=("-DSPILLWAY_CUDA=OFF")
      fi
      ;;
  esac
}

configure() {
  local preset=${1:?which preset?} folder="$root/build/$1" cmake arguments stamp
  system
  cmake=$(cmake_program)
  collect_arguments "$preset"
  stamp="$(cksum <"$root/CMakePresets.json") $root $cmake ${arguments[*]-}"
  if [ -f "$folder/build.ninja" ]; then
    [ "$(cat "$folder/.configured" 2>/dev/null)" != "$stamp" ] || return 0
    # What CMake found for another LibTorch or compiler must not linger in its cache.
    rm -rf "$folder/CMakeCache.txt" "$folder/CMakeFiles"
  fi
  say "configuring build/$preset"
  (cd "$root" && logged "configure-$preset" "$cmake" --preset "$preset" ${arguments[@]+"${arguments[@]}"}) ||
    die "CMake could not configure the preset $preset"
  printf '%s' "$stamp" >"$folder/.configured"
}

# Leaves every twentieth progress line where nobody watches a terminal.
thin_progress() { awk '!/^\[[0-9]+\/[0-9]+\]/ || ++lines % 20 == 0 { print; fflush() }'; }

run_ninja() { ninja -C "$root/build/$1" -j "${SPILLWAY_JOBS:-$(nproc)}" "${@:2}" </dev/null; }

build() {
  local preset=${1:?which preset?} todo
  configure "$preset"
  # Ninja says "no work to do" without doing any; asking first keeps a second run quiet.
  todo=$(run_ninja "$preset" -n "${@:2}" | tail -n 1)
  case "$todo" in *"no work to do"*) return 0 ;; esac
  say "building build/$preset"
  if [ -t 1 ]; then
    run_ninja "$@"
  else
    run_ninja "$@" | thin_progress
  fi
}

run_tests() {
  local preset=${1:?which preset?} wrapper=()
  build "$preset"
  # The thread sanitizer of older compilers dies where addresses are randomised over more than 28 bits.
  if [ "$preset" = tsan ] && [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)" -gt 28 ]; then
    wrapper=(setarch -R)
  fi
  ${wrapper[@]+"${wrapper[@]}"} "$(ctest_program)" --test-dir "$root/build/$preset" -j "${SPILLWAY_TEST_JOBS:-2}" \
    --output-on-failure --no-tests=error "${@:2}" </dev/null
}

install_to() {
  local prefix=${1:?where to?}
  build default
  "$(cmake_program)" --install "$root/build/default" --prefix "$prefix"
}

# One fuzzer for so many seconds: one_fuzzer program seconds.
one_fuzzer() {
  local fuzzer=$1 seconds=$2 folder="$root/build/fuzz" name corpus
  name=$(basename "$fuzzer")
  corpus=("$folder/corpus/$name")
  mkdir -p "${corpus[0]}" "$folder/crashes"
  [ ! -d "$root/tests/fuzz/corpus/$name" ] || corpus+=("$root/tests/fuzz/corpus/$name")
  say "fuzzing $name for $seconds s"
  logged "fuzz-$name" "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$folder/crashes/$name-" "${corpus[@]}" || die "$name failed; its input is in $folder/crashes"
  say "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$logs/fuzz-$name.log") inputs, no failure"
}

# Runs every fuzzer for $1 seconds on its corpus in tests/fuzz/corpus, two at a time; new finds stay in the build folder.
fuzz() {
  local seconds=${1:?how many seconds?} fuzzers fuzzer failed=0
  build fuzz
  fuzzers=("$root"/build/fuzz/fuzzers/*_fuzzer)
  [ -x "${fuzzers[0]}" ] || die "there is no fuzzer in $root/build/fuzz/fuzzers"
  for fuzzer in "${fuzzers[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n || failed=1; done
    (one_fuzzer "$fuzzer" "$seconds") &
  done
  while [ -n "$(jobs -rp)" ]; do wait -n || failed=1; done
  [ "$failed" -eq 0 ] || die "a fuzzer found something"
}

# --- sources ---------------------------------------------------------------------------------------------------------

# Formatting differs between versions, so one is fixed.
clang_format_program() {
  if command -v clang-format-14 >/dev/null; then
    echo clang-format-14
  else
    program_from_wheel clang-format "$clang_format_wheel"
  fi
}

sources() { git -C "$root" ls-files -z -- '*.cpp' '*.hpp' '*.cu' '*.cuh'; }

format() {
  local program
  program=$(clang_format_program)
  (cd "$root" && sources | xargs -0 --no-run-if-empty "$program" --style=file "$@")
}

lint() {
  local version
  version=$(clang_version clang-tidy clang-tidy-VERSION)
  require_packages "clang-tidy-$version"
  configure debug
  (cd "$root" && git ls-files -z -- 'offload/*.cpp' | xargs -0 --no-run-if-empty -n 4 -P "$(nproc)" \
    "clang-tidy-$version" --quiet -p build/debug)
}
