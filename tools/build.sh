#!/bin/bash
# build.sh PRESET [TARGET...]: installs what is missing (tools/install.sh), configures and builds a preset of
# CMakePresets.json into build/PRESET; with targets, only those. ./run and ./test call this.
# CMAKE_BUILD_PARALLEL_LEVEL sets the number of compilers at once (default: cores, and 1 GB of free memory for each).
# Exit code: 0 built, 3 not.
set -euo pipefail

[[ $# -ge 1 ]] || { echo "usage: build.sh PRESET [TARGET...]" >&2; exit 2; }
preset=$1
shift
cd "$(dirname "$0")/.."
root=$PWD
tools/install.sh

options=()
if command -v ccache > /dev/null; then
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  # Another clone of the same source finds what this one has compiled.
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
fi
# The release preset makes warnings errors; which warnings there are depends on the compiler, and this is the one that we know.
compiler=${CXX:-c++}
[[ $($compiler -dumpfullversion 2> /dev/null) == 12.* ]] || options+=(-DSTRATA_WERROR=OFF)

if [[ -z ${CMAKE_BUILD_PARALLEL_LEVEL-} ]]; then
  jobs=$(nproc 2> /dev/null || echo 2)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 1000000) }' /proc/meminfo 2> /dev/null || true)
  if [[ -n $memory && $memory -lt $jobs ]]; then jobs=$((memory > 1 ? memory : 1)); fi
  export CMAKE_BUILD_PARALLEL_LEVEL=$jobs
fi

mkdir -p build
# Two builds of one folder at once would spoil it.
exec 9> "build/.lock-$preset"
if command -v flock > /dev/null && ! flock --nonblock 9; then
  echo "strata: another build of build/$preset is going on; waiting for it" >&2
  flock 9
fi

log=build/configure-$preset.log
if ! cmake --preset "$preset" "${options[@]}" > "$log" 2>&1 9>&-; then
  tail -n 30 "$log" >&2
  echo "strata: configuring failed; all of it: $log" >&2
  exit 3
fi
targets=()
[[ $# -eq 0 ]] || targets=(--target "$@")
cmake --build "build/$preset" "${targets[@]}" 9>&- || { echo "strata: the build failed; what the compiler said is above" >&2; exit 3; }
