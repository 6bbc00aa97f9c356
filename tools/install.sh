#!/bin/bash
# install.sh: makes sure that everything Strata is built from is on this machine.
#
# On Debian and its relatives, missing packages are installed with apt-get; what is there already is left alone, so a
# second call does nothing and needs neither root nor a network. Elsewhere it names what to provide.
# `install.sh --list` prints the packages. STRATA_NO_INSTALL=1 trusts the machine as it is (modules, Spack, conda).
# Exit code: 0 all there, 2 bad argument, 3 something is missing; what and how to get it is on standard error.
set -euo pipefail

# What each is for: docs/dependencies.md.
required=(
  g++ cmake ninja-build pkg-config
  libdnnl-dev libhwy-dev libhwloc-dev
  libsentencepiece-dev libtomlplusplus-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libxxhash-dev libcli11-dev
  zlib1g-dev libzstd-dev
  libpcre2-dev libutf8proc-dev
  libopenmpi-dev openmpi-bin
  libgtest-dev libgmock-dev
)
# Only makes repeated builds quick; a second MPI library that tests run under; a cluster on one machine, for benchmarks.
optional=(ccache libmpich-dev mpich iproute2 procps)

libraries="oneDNN 2.6 or later, Highway 1.0, hwloc 2, SentencePiece 0.1.97 (with its trainer), toml++ 3, nlohmann-json 3.11,
  an MPI library (Open MPI 4 or MPICH 4, with mpicxx; without one there is never more than one rank), spdlog 1.10, fmt 9, xxHash 0.8, zlib 1.2, zstd 1.4, PCRE2 10.40, utf8proc 2.8, CLI11 2.1, GoogleTest and GoogleMock 1.12"
tools="a C++20 compiler (GCC 12 or Clang 15, or later), CMake 3.25 or later, Ninja, pkg-config"

case "${1-}" in
  '') ;;
  --list) printf '%s\n' "${required[@]}" "${optional[@]}"; exit 0 ;;
  *) echo "usage: install.sh [--list]" >&2; exit 2 ;;
esac

have() { command -v "$1" > /dev/null 2>&1; }

# Names the tools of the build that are not on the PATH.
missing_tools() {
  local cxx=${CXX:-c++}
  have "${cxx%% *}" || { [[ -z ${CXX-} ]] && { have g++ || have clang++; }; } || echo "a C++20 compiler (\$CXX, c++, g++ or clang++)"
  have cmake || echo "cmake"
  have ninja || have ninja-build || echo "ninja"
  have pkg-config || echo "pkg-config"
}

# For machines that are not installed from here: the tools must be there; CMake itself says which library is not.
trust_machine() {
  local missing
  missing=$(missing_tools | paste -sd, | sed 's/,/, /g')
  [[ -z $missing ]] && return 0
  cat >&2 <<END
strata: missing on this machine: $missing
  $1
  Strata is built with $tools;
  and on these libraries: $libraries.
  With modules, Spack or conda, load them and put their prefixes on CMAKE_PREFIX_PATH and PKG_CONFIG_PATH; then run this again.
END
  exit 3
}

if [[ -n ${STRATA_NO_INSTALL-} ]]; then
  trust_machine "STRATA_NO_INSTALL is set, so nothing is installed."
  exit 0
fi
if ! have dpkg-query || ! have apt-get; then
  trust_machine "There is no apt here, so nothing can be installed for you."
  exit 0
fi

# The packages of a list that are not fully installed.
absent() {
  local installed
  # dpkg-query fails when it does not know a package, which is an answer.
  installed=$(dpkg-query --show --showformat '${db:Status-Status} ${Package}\n' "$@" 2> /dev/null | sed -n 's/^installed //p') || true
  printf '%s\n' "$@" | grep --invert-match --line-regexp --fixed-strings "$installed" || true
}

mapfile -t need < <(absent "${required[@]}")
mapfile -t want < <(absent "${optional[@]}")
# What is only pleasant to have comes along with what is needed, and is no reason of its own.
[[ ${#need[@]} -eq 0 ]] && exit 0

if [[ $EUID -ne 0 ]]; then
  cat >&2 <<END
strata: missing on this machine: ${need[*]}
  Installing packages takes root. Run

    sudo apt-get update && sudo apt-get install --no-install-recommends ${need[*]} ${want[*]}

  and then this again. Without root: provide the libraries otherwise and set STRATA_NO_INSTALL=1.
END
  exit 3
fi

echo "strata: installing with apt: ${need[*]} ${want[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt_install() { apt-get install --yes --quiet=2 --no-install-recommends -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 "$@" < /dev/null; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
give_up() {
  tail -n 20 "$log" >&2
  cat >&2 <<END
strata: apt could not install: $*
  Its last words are above. If this machine has no network, or the release is older than Debian 12 (some of the
  packages are not in it), provide them otherwise and set STRATA_NO_INSTALL=1. Strata is built with
  $tools;
  and on these libraries: $libraries.
END
  exit 3
}

# A machine's package lists may be absent or old; a failing update is told only if the install fails as well.
apt-get update --quiet=2 > "$log" 2>&1 < /dev/null || true
apt_install "${need[@]}" >> "$log" 2>&1 || give_up "${need[@]}"
if [[ ${#want[@]} -gt 0 ]]; then
  apt_install "${want[@]}" > "$log" 2>&1 || echo "strata: going on without ${want[*]}" >&2
fi
mapfile -t need < <(absent "${required[@]}")
[[ ${#need[@]} -eq 0 ]] || give_up "${need[@]}"
