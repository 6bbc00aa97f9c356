#!/bin/bash
# links.sh [OPTIONS of cluster.sh]: what the links of a cluster of 2 nodes x 2 packages x 2 ranks carry, beside what they should.
#
# A row for each pattern of streams: megabits of payload a second and direction of a link, and how much of the rate that is. Then
# what 8 bytes take there and back while links are busy. Environment: SECONDS_EACH (default 3), BYTES a message (default 262144),
# ROUNDS (default 1; of each row the best counts), ONLY a pattern of rows; MPICXX, and what cluster.sh takes.
# Exit code: 0 done, 2 bad input or nothing to run on, 3 failed.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
each=${SECONDS_EACH:-3} bytes=${BYTES:-262144}
command -v "${MPICXX:-mpicxx}" > /dev/null || { echo "links.sh: needs ${MPICXX:-mpicxx}: apt-get install libopenmpi-dev" >&2; exit 2; }
node=4gbit nic=1gbit
for ((i = 1; i < $#; i++)); do
  next=$((i + 1))
  case ${!i} in
    --node-rate) node=${!next} ;;
    --nic-rate) nic=${!next} ;;
    --nodes | --packages | --ranks) echo "links.sh: the cluster is one of 2 x 2 x 2" >&2; exit 2 ;;
  esac
done
folder=$(mktemp -d)
up=''
finish() {
  [[ -z $up ]] || "$here/cluster.sh" --down
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"${MPICXX:-mpicxx}" -std=c++20 -O2 "$here/links.cpp" -o "$folder/links" || exit 3
"$here/cluster.sh" --up "$@"
up=1

megabits() { awk -v rate="$1" 'BEGIN { print rate * (rate ~ /gbit/ ? 1000 : 1) }'; }
# measure WHAT RATE DIRECTIONS FLOW...: one row; DIRECTIONS is how many of links the streams fill.
measure() {
  local what=$1 rate=$2 directions=$3 round
  [[ $what == *${ONLY-}* ]] || return 0
  for ((round = 0; round < ${ROUNDS:-1}; round++)); do
    "$here/cluster.sh" --run -- "$folder/links" "$each" "$bytes" "${@:4}" > "$folder/said" || { cat "$folder/said" >&2; exit 3; }
    awk -v directions="$directions" -v rate="$(megabits "$rate")" '
      $4 == "stream" { sum += $5 }
      $4 == "echo" { median = $6; longest = $9 }
      END {
        printf "%.3f|", directions ? sum / directions : -median
        printf (directions ? "%9.1f %6.1f %%" : "%9s %8s"), directions ? sum / directions : "", directions ? 100 * sum / directions / rate : ""
        if (median) printf " %12.2f %12.2f", median, longest
      }' "$folder/said"
    echo
  done | sort -g | tail -n 1 | { IFS='|' read -r _ row; printf '%-34s %s\n' "$what" "$row"; }
}
printf '%-34s %9s %8s %12s %12s\n' "node $node, NIC $nic" 'Mb/s' 'of rate' 'echo (ms)' 'longest'
measure 'NIC, one way' "$nic" 1 0-4
measure 'NIC, both ways' "$nic" 2 0=4
measure 'NIC, both ways, both ranks' "$nic" 2 0=4 1=5
measure 'NICs, all ways, all ranks' "$nic" 4 0=4 1=5 2=6 3=7
measure 'NIC, four ranks to one' "$nic" 1 4-0 5-0 6-0 7-0 4~1
measure 'node, one way' "$node" 1 0-2
measure 'node, both ways' "$node" 2 0=2
measure 'node, all ways, all ranks' "$node" 4 0=2 1=3 4=6 5=7
measure 'echo over an idle NIC' "$nic" 0 0~4
measure 'echo beside another rank, NIC' "$nic" 1 0-4 1~5
measure 'echo beside its own stream, NIC' "$nic" 1 0-4 0~4
measure 'echo between its own streams, NIC' "$nic" 2 0=4 0~4
measure 'echo between its own, node' "$node" 2 0=2 0~2
