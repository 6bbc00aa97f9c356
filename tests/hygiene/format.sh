#!/bin/bash
# Is every source formatted as .clang-format says? Releases of clang-format differ, so only the one of Debian 12 counts;
# without it the test is skipped (exit code 77).
set -euo pipefail
cd "$(dirname "$0")/../.."
tool=
for candidate in clang-format-14 clang-format; do
  if command -v $candidate > /dev/null && [[ $($candidate --version) == *version\ 14.* ]]; then tool=$candidate; break; fi
done
if [[ -z $tool ]]; then
  echo "SKIPPED: formatting was not checked: there is no clang-format 14 here (apt-get install clang-format)"
  exit 77
fi
mapfile -t files < <(find . -path './build*' -prune -o \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' \) -print)
printf '%s\0' "${files[@]}" | xargs -0 -n 16 $tool --dry-run --Werror --ferror-limit=1 ||
  { echo "put it right with: $tool -i FILE..."; exit 1; }
echo "${#files[@]} files"
