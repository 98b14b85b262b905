# What Spillway is measured beside. Sourced by scripts/bootstrap; uses its variables and functions.
#
# $cache/peers/deepspeed_io, deepspeed_step, deepspeed_adam and data_loader are programs that measure DeepSpeed's async_io,
# ZeRO-3 and CPUAdam and torchvision's DataLoader on demand (the scripts of the same names in bench/peers say how they are
# talked to); `spillway bench` looks for them there. fio is a system package.

readonly deepspeed_version=0.19.8
readonly torchvision_version=0.26.0 # Of torch 2.11.0.
readonly deepspeed_needs=(einops hjson msgpack ninja "numpy<3" packaging psutil py-cpuinfo "pydantic>=2" tqdm)
readonly torch_needs=(filelock typing-extensions sympy networkx jinja2 fsspec "setuptools<82" wheel)

peers() {
  require_packages fio libaio-dev python3-dev python3-venv g++
  with_cache_lock install_deepspeed
  say "$("$cache/peers/deepspeed_io" </dev/null)"
  say "$("$cache/peers/deepspeed_step" </dev/null)"
  say "$("$cache/peers/deepspeed_adam" </dev/null)"
  with_cache_lock install_torchvision
  say "$("$cache/peers/data_loader" </dev/null)"
}

# The torch that was fetched for its libraries serves a Python of the version that its wheel is for; another Python
# gets one of its own.
give_torch() {
  local venv=$1 packages
  if [ -d "$libtorch_cached" ] && [ "$("$venv/bin/python" -c 'import sys; print(*sys.version_info[:2])')" = "3 11" ]; then
    packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "$libtorch_cached" >"$packages/torch_of_spillway.pth"
    logged peers-torch "$venv/bin/python" -m pip install "${torch_needs[@]}"
  else
    logged peers-torch "$venv/bin/python" -m pip install "torch==$torch_version" "${torch_needs[@]}"
  fi
}

install_deepspeed() {
  local folder="$cache/peers" venv="$cache/peers/deepspeed" program
  mkdir -p "$folder"
  if [ ! -f "$venv/.complete-$deepspeed_version" ]; then
    say "installing DeepSpeed $deepspeed_version (once) into $folder"
    rm -rf "$venv"
    python3 -m venv "$venv" && give_torch "$venv" &&
      logged peers-needs "$venv/bin/python" -m pip install "${deepspeed_needs[@]}" &&
      DS_ACCELERATOR=cpu logged peers-deepspeed "$venv/bin/python" -m pip install --no-deps --no-build-isolation \
        "deepspeed==$deepspeed_version" || die "could not install DeepSpeed"
  fi
  cp "$root"/bench/peers/*.py "$folder"
  for program in deepspeed_io deepspeed_step deepspeed_adam; do
    cat >"$folder/$program" <<EOT
#!/bin/sh
# Its ops are compiled where they are first used; ninja stands beside Python.
here=\$(dirname "\$0")
PATH="\$here/deepspeed/bin:\$PATH" DS_ACCELERATOR=cpu TORCH_EXTENSIONS_DIR="\$here/deepspeed/ops" \\
  exec "\$here/deepspeed/bin/python" "\$here/$program.py"
EOT
    chmod +x "$folder/$program"
  done
  logged peers-op "$folder/deepspeed_io" || die "DeepSpeed's async_io does not work here"
  touch "$venv/.complete-$deepspeed_version"
}

# Into the environment that is there, beside its torch.
install_torchvision() {
  local folder="$cache/peers" venv="$cache/peers/deepspeed"
  if [ ! -f "$venv/.complete-torchvision-$torchvision_version" ]; then
    say "installing torchvision $torchvision_version (once) into $folder"
    logged peers-torchvision "$venv/bin/python" -m pip install "numpy<3" pillow &&
      logged peers-torchvision "$venv/bin/python" -m pip install --no-deps "torchvision==$torchvision_version" ||
      die "could not install torchvision"
  fi
  cat >"$folder/data_loader" <<'EOT'
#!/bin/sh
here=$(dirname "$0")
exec "$here/deepspeed/bin/python" "$here/data_loader.py"
EOT
  chmod +x "$folder/data_loader"
  "$folder/data_loader" </dev/null >/dev/null || die "torchvision's DataLoader does not work here"
  touch "$venv/.complete-torchvision-$torchvision_version"
}
