#!/bin/bash
# check_includes.sh [ROOT]: uses go down only.
#
# Every #include of a file of Strata under ROOT/src (default: this repository's) must name its own part or one on a lower
# line of the order below, and each part's CMakeLists.txt must say the same: USES only lower parts, all that its files
# include (directly or through another), none that they do not. src/README.md tells what the parts are.
# Exit code: 0 clean, 1 a use in the wrong direction (each on a line FILE:LINE: ...), 2 bad argument.
set -euo pipefail

# Lowest first. Parts on one line are siblings and do not use each other.
order='
core
ops files machine
data device layout
comm
mpi
model optim
job
checkpoint step
simulate execute
plan train
tune
report
cli
'

root=${1-$(cd "$(dirname "$0")/.." && pwd)}
[[ -d $root/src ]] || { echo "check_includes.sh: no folder $root/src" >&2; exit 2; }
cd "$root"

declare -A rank
height=0
while read -r -a line; do
  for part in "${line[@]}"; do rank[$part]=$height; done
  height=$((height + 1))
done <<< "$order"

faults=0
fault() { echo "$1"; faults=$((faults + 1)); }
# Whether part $1 may use part $2, with the reason if not in $why.
may_use() {
  why=
  if [[ $1 == "$2" || ${rank[$2]} -lt ${rank[$1]} ]]; then return 0; fi
  if [[ ${rank[$2]} -eq ${rank[$1]} ]]; then why="they are siblings"; else why="$2 lies above $1"; fi
  return 1
}

for folder in src/*/; do
  part=${folder#src/} part=${part%/}
  [[ -n ${rank[$part]-} ]] || fault "$folder: a part that the order in tests/check_includes.sh does not know"
done

# Includes. `included` collects "user used" pairs for the second half.
declare -A included files_of
while IFS=: read -r file line text; do
  part=${file#src/} part=${part%%/*}
  [[ -n ${rank[$part]-} ]] || continue
  files_of[$part]=1
  [[ $text =~ ^[[:space:]]*#[[:space:]]*include[[:space:]]*([\<\"])([^\>\"]+) ]] || continue
  bracket=${BASH_REMATCH[1]} path=${BASH_REMATCH[2]} used=${BASH_REMATCH[2]%%/*}
  if [[ $bracket == '"' ]]; then
    if [[ -z ${rank[$used]-} || $path != */* ]]; then
      fault "$file:$line: \"$path\" is no path below src/: write PART/..., or <...> for what is not Strata's"
      continue
    fi
  elif [[ -z ${rank[$used]-} || ! -e src/$path ]]; then
    continue
  fi
  may_use "$part" "$used" || { fault "$file:$line: $part includes $path, but $why"; continue; }
  [[ $part == "$used" ]] || included["$part $used"]="$file:$line"
done < <(grep --recursive --line-number --include='*.h' --include='*.cpp' --include='*.cu' --include='*.inc' \
  '^[[:space:]]*#[[:space:]]*include' src || true)

# USES. A part may have several strata_part() calls (one for each kind of build); all of them count. A list that CMake
# computes (cli's) stands for every part below.
declare -A uses computed
for part in "${!rank[@]}"; do
  list=src/$part/CMakeLists.txt
  [[ -f $list ]] || continue
  for used in $(awk '{ sub(/#.*/, ""); gsub(/[()]/, " & "); for (i = 1; i <= NF; ++i) {
      if ($i == "strata_part") { inside = 1; uses = 0 } else if ($i == ")") { inside = 0 }
      else if ($i == "USES") { uses = 1 } else if ($i == "LIBRARIES" || $i == "SOURCES") { uses = 0 }
      else if (inside && uses && !seen[$i]++) print $i } }' "$list"); do
    if [[ $used == *'$'* ]]; then
      computed[$part]=1
    elif [[ -z ${rank[$used]-} ]]; then
      fault "$list: USES $used, which is no part"
    elif [[ $used == "$part" ]]; then
      fault "$list: USES $used, which is itself"
    elif ! may_use "$part" "$used"; then
      fault "$list: $part USES $used, but $why"
    else
      uses[$part]+=" $used"
    fi
  done
done

# Whether $1 reaches $2 through USES. Every step goes down, so this ends.
reaches() {
  local next
  for next in ${uses[$1]-}; do
    if [[ $next == "$2" ]] || reaches "$next" "$2"; then return 0; fi
  done
  return 1
}
for pair in "${!included[@]}"; do
  read -r part used <<< "$pair"
  [[ -f src/$part/CMakeLists.txt && -z ${computed[$part]-} ]] || continue
  reaches "$part" "$used" || fault "src/$part/CMakeLists.txt: USES lacks $used, which ${included[$pair]} includes"
done
for part in "${!uses[@]}"; do
  [[ -n ${files_of[$part]-} ]] || continue
  for used in ${uses[$part]}; do
    [[ -n ${included["$part $used"]-} ]] || fault "src/$part/CMakeLists.txt: USES $used, but no file of $part includes it"
  done
done

if [[ $faults -gt 0 ]]; then
  echo "check_includes.sh: $faults uses that should not be; the order is in src/README.md"
  exit 1
fi
