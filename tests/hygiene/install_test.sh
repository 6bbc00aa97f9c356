#!/bin/bash
# Does tools/install.sh do nothing when nothing is missing, and explain itself when apt, root, a compiler or a network is?
# Runs it with a PATH of its own, where apt-get and dpkg-query are stand-ins, and (as root) as a user who is not.
set -euo pipefail
script=$(cd "$(dirname "$0")/../.." && pwd)/tools/install.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mapfile -t packages < <("$script" --list)
failures=0

# A PATH with the shell's usual companions and the given names, which do nothing.
machine() {
  rm -rf "$work/bin"
  mkdir "$work/bin"
  local name
  for name in bash sed grep cat paste mktemp rm tail env; do ln -s "$(command -v $name)" "$work/bin/$name"; done
  for name in "$@"; do
    printf '#!/bin/bash\nexit 0\n' > "$work/bin/$name"
    chmod +x "$work/bin/$name"
  done
}
# dpkg-query that knows these packages; apt-get that records how it is called, and then runs $apt.
debian() {
  { echo '#!/bin/bash'; echo "have=' $* '"; cat; } > "$work/bin/dpkg-query" <<'END'
code=0
for name in "${@:3}"; do
  if [[ $have == *" $name "* || -e ${0%/*}/../installed ]]; then echo "installed $name"; else code=1; fi
done
exit $code
END
  printf '#!/bin/bash\necho "$@" >> "%s/apt.log"\n%s\n' "$work" "${apt-:}" > "$work/bin/apt-get"
  chmod +x "$work/bin/dpkg-query" "$work/bin/apt-get"
  rm -f "$work/apt.log" "$work/installed"
}
# As root or, after `user=nobody`, not. The script comes on standard input: a stranger may not see this folder.
go() {
  local as=()
  if [[ ${user-} == nobody && $EUID -eq 0 ]]; then as=(setpriv --reuid=65534 --regid=65534 --clear-groups); fi
  code=0
  "${as[@]}" env -i PATH="$work/bin" TMPDIR="$work" "$@" "$work/bin/bash" -s < "$script" > "$work/said" 2>&1 || code=$?
}
# wanted CODE TEXT...
wanted() {
  local text
  if [[ $code -ne $1 ]]; then
    echo "FAILED: line ${BASH_LINENO[0]}: wanted exit code $1, got $code and:"; cat "$work/said"; failures=$((failures + 1))
  fi
  for text in "${@:2}"; do
    if [[ "$(< "$work/said")" != *"$text"* ]]; then
      echo "FAILED: line ${BASH_LINENO[0]}: wanted '$text' in:"; cat "$work/said"; failures=$((failures + 1))
    fi
  done
}
untouched() {
  [[ ! -e $work/apt.log ]] || { echo "FAILED: line ${BASH_LINENO[0]}: called apt-get $(< "$work/apt.log")"; failures=$((failures + 1)); }
}
silent() { [[ ! -s $work/said ]] || { echo "FAILED: line ${BASH_LINENO[0]}: said $(< "$work/said")"; failures=$((failures + 1)); }; }

# Everything there: nothing is done or said, by whomever.
machine; debian "${packages[@]}"; user=root go; wanted 0; untouched; silent
machine; debian "${packages[@]}"; user=nobody go; wanted 0; untouched; silent
# So too without what is only pleasant to have.
machine; debian "${packages[@]/ccache/}"; user=root go; wanted 0; untouched; silent

# Not root: the exact command, and nothing is tried.
machine; debian "${packages[@]/libhwy-dev/}"; user=nobody go
wanted 3 'missing on this machine: libhwy-dev' 'sudo apt-get update && sudo apt-get install --no-install-recommends libhwy-dev' STRATA_NO_INSTALL
untouched

# No apt: what is missing and what Strata is built with; content where the tools are there.
machine; user=nobody go
wanted 3 'There is no apt here' 'a C++20 compiler' 'cmake, ninja, pkg-config' 'oneDNN' 'SentencePiece'
machine cmake ninja pkg-config; user=nobody go; wanted 3 'missing on this machine: a C++20 compiler'
machine cmake ninja pkg-config g++; user=nobody go; wanted 0; silent
machine cmake ninja pkg-config g++; user=nobody go CXX=clang++-19; wanted 3 'missing on this machine: a C++20 compiler'
machine cmake ninja pkg-config clang++-19; user=nobody go CXX='clang++-19 -stdlib=libc++'; wanted 0; silent
# Told to leave the machine alone.
machine cmake ninja pkg-config c++; debian; user=nobody go STRATA_NO_INSTALL=1; wanted 0; untouched; silent
machine cmake ninja pkg-config; debian; user=nobody go STRATA_NO_INSTALL=1
wanted 3 'STRATA_NO_INSTALL is set' 'a C++20 compiler'; untouched

if [[ $EUID -eq 0 ]]; then
  # Root: what is missing is installed, and only that, and apt never asks.
  machine; apt='[[ $1 != install ]] || : > "${0%/*}/../installed"' debian "${packages[@]/libhwy-dev/}"; go
  wanted 0 'installing with apt: libhwy-dev'
  [[ "$(grep install "$work/apt.log")" =~ --yes.*\ libhwy-dev$ ]] || { echo "FAILED: apt-get $(< "$work/apt.log")"; failures=$((failures + 1)); }
  # No network, or no such package, or no room: apt's words, and what to do.
  machine; apt='echo "E: Unable to locate package g++"; exit 100' debian; go
  wanted 3 'E: Unable to locate package g++' 'apt could not install' 'a C++20 compiler' STRATA_NO_INSTALL
  # apt is content and yet a package is not there.
  machine; debian; go; wanted 3 'apt could not install: g++'
else
  echo "not root: what root sees was not tried"
fi

code=0
"$script" --sideways > "$work/said" 2>&1 || code=$?
wanted 2 usage
[[ $failures -eq 0 ]] || exit 1
echo passed
