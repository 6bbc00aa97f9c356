#!/bin/bash
# Do ./run and ./test refuse what they cannot use, at once and by name? Copies of them are tried in an empty folder, where
# one that went on to build would fail otherwise.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$root/run" "$root/test" "$root/CMakePresets.json" "$work"
cd "$work"
echo "some text" > text.txt
: > empty.txt
mkdir folder
failures=0
# wanted CODE TEXT COMMAND...
wanted() {
  local code=0
  "${@:3}" > said 2>&1 < /dev/null || code=$?
  if [[ $code -ne $1 || "$(< said)" != *"$2"* ]]; then
    echo "FAILED: ${*:3}: wanted exit code $1 and '$2', got $code and:"
    cat said
    failures=$((failures + 1))
  fi
}
wanted 0 'usage: ./run' ./run --help
wanted 2 'unknown argument --fast' ./run --fast
wanted 2 'unknown argument text.txt' ./run text.txt
wanted 2 '--text takes the names' ./run --text
wanted 2 '--text takes the names' ./run --text --quick
wanted 2 'nowhere.txt: no such text file' ./run --text text.txt nowhere.txt --quick
wanted 2 'folder: no such text file' ./run --text folder
wanted 2 'empty.txt: the file is empty' ./run --quick --text empty.txt
wanted 2 '--folder takes a folder' ./run --folder
wanted 2 'text.txt/run: cannot make this folder' ./run --folder text.txt/run
wanted 2 '--steps takes a whole number' ./run --steps 1.5
wanted 2 '--steps takes a whole number' ./run --steps 0
wanted 0 'usage: ./test' ./test --help
wanted 2 'unknown argument fast' ./test fast
wanted 2 '-R takes a pattern' ./test -R
wanted 2 'no preset rlease' ./test --preset rlease
[[ ! -e runs && ! -e build ]] || { echo "FAILED: something was made"; failures=$((failures + 1)); }
[[ $failures -eq 0 ]] || exit 1
echo passed
