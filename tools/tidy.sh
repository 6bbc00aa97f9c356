#!/bin/bash
# tidy.sh BUILD_FOLDER [FILE...]: clang-tidy (.clang-tidy) over the sources of src/, or the files named, with the compile
# commands of a configured build. Exit code: 0 nothing found, 3 something, or no clang-tidy.
set -euo pipefail
[[ $# -ge 1 ]] || { echo "usage: tidy.sh BUILD_FOLDER [FILE...]" >&2; exit 2; }
build=$1
shift
cd "$(dirname "$0")/.."
command -v clang-tidy > /dev/null || { echo "tidy.sh: needs clang-tidy: apt-get install clang-tidy" >&2; exit 3; }
[[ -f $build/compile_commands.json ]] || { echo "tidy.sh: $build is no configured build" >&2; exit 2; }
if [[ $# -eq 0 ]]; then
  # Only what this build compiles: a backend that is left out has no compile command.
  mapfile -t files < <(find src -name '*.cpp' | sort | while read -r file; do
    grep -q "\"file\": \".*/$file\"" "$build/compile_commands.json" && echo "$file"
  done)
else
  files=("$@")
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
printf '%s\n' "${files[@]}" | xargs -P "$(nproc 2> /dev/null || echo 2)" -I{} \
  clang-tidy -p "$build" --quiet --warnings-as-errors='*' {} > "$log" 2> /dev/null || code=3
# A header's finding comes once for every file that includes it.
grep -E '(warning|error):' "$log" | sort -u || true
echo "tidy.sh: ${#files[@]} files, $(grep -E '(warning|error):' "$log" | sort -u | wc -l) findings"
exit $code
