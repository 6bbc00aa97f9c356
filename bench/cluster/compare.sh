#!/bin/bash
# compare.sh OUT [OPTION ...]: placements measured against each other on a cluster of three speeds, beside what their step
# programs allow on its links.
#
# Makes the cluster (cluster.sh), measures its links, and runs compare.toml's job under every placement, with collectives as
# published and by level. Operations last as long as a modelled device's and compute nothing (strata bench placements, hollow
# devices); bytes, links and schedules are real. The package level, which shared memory would make too fast or too slow, is paced by
# the program. Writes OUT/placements.{json,svg}, OUT/machine.toml (nominal) and OUT/measured.toml, and prints the table.
#
# OPTIONs go to strata bench placements (--placements, --collectives, --micro-batches, --steps, ...). Environment:
#   STRATA     the program (default: build/release/bin/strata)
#   JOB        what it trains (default: compare.toml beside this script)
#   PACE       levels that the program paces (default: package; "": none)
#   NODES      nodes of two packages of two ranks (default 2: 8 ranks; 4 and 8 make 16 and 32)
#   NIC        the NIC's rate in Mbit/s (default 100); packages and nodes follow in Frontier's proportions, 200 : 75 : 25
#   NODE       how many times that a package's link inside its node carries (default 3)
#   COMPUTE    seconds that a rank computes for one micro-batch (default 2.8: the ratio to the NIC of GPT-NeoX-20B with one sequence
#              of 2048 tokens a die: 4.6 s, beside 41.1 GB of weights at 25 GB/s)
# Exit code: that of strata; 2 where no cluster can be made.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
out=${1:?usage: compare.sh OUT [OPTION ...]}
shift
strata=${STRATA:-$here/../../build/release/bin/strata}
PACE=${PACE-package}
nodes=${NODES:-2} nic=${NIC:-100} node=${NODE:-3} compute=${COMPUTE:-2.8}
[[ -x $strata ]] || { echo "compare.sh: no $strata: build it first (./run), or set STRATA" >&2; exit 2; }
[[ $nodes =~ ^[1-8]$ ]] || { echo "compare.sh: NODES=$nodes: not 1 to 8" >&2; exit 2; }
for value in "$nic" "$node" "$compute"; do
  [[ $value =~ ^[0-9]+(\.[0-9]+)?$ ]] || { echo "compare.sh: $value is not a number" >&2; exit 2; }
done
mkdir -p "$out"
strata=$(readlink -f "$strata") out=$(readlink -f "$out")

# machine PEAK: the nominal machine, with a device of so many FLOP/s.
machine() {
  awk -v nic="$nic" -v node="$node" -v peak="$1" 'BEGIN {
    nic *= 1e6 / 8
    printf "name = \"cluster\"\ndescription = \"bench/cluster/compare.sh, NIC of %g MB/s\"\n\n", nic / 1e6
    printf "[device]\nname = \"modelled\"\nmemory = 64e9\nmemory_bandwidth = 1e15\npeak = %.6e\nsource = \"chosen for a micro-batch of given length\"\n", peak
    split("package node system", name, " "); split("8 " node " 1", times, " "); split("1 2 2", sharing, " ")
    for (i = 1; i <= 3; ++i)
      printf "\n[[level]]\nname = \"%s\"\nwidth = %s\nbandwidth = %.6e\nlatency = 1e-4\nshared_by = %d\nsource = \"nominal\"\n",
        name[i], i == 3 ? "\"*\"" : 2, nic * times[i], sharing[i]
  }' > "$out/machine.toml"
}
job=(bench placements "${JOB:-$here/compare.toml}" --set run.machine="$out/machine.toml")
options=()
while [[ $# -gt 0 ]]; do
  # What changes the job changes how long a micro-batch takes as well.
  if [[ $1 == --set && $# -ge 2 ]]; then job+=(--set "$2"); shift; else options+=("$1"); fi
  shift
done

# What a device of 1 GFLOP/s computes in one micro-batch says how fast the modelled one is.
machine 1e9
slow=$("$strata" "${job[@]}" --ranks $((nodes * 4)) --placements ddp --collectives levels --micro-batches 1 --json |
  sed -n 's/.*"compute_s": *\([0-9.e+-]*\).*/\1/p' | head -n 1)
machine "$(awk -v slow="$slow" -v compute="$compute" 'BEGIN { printf "%.6e", 1e9 * slow / compute }')"

"$here/cluster.sh" --nodes "$nodes" --node-rate "$(awk -v nic="$nic" -v node="$node" 'BEGIN { print node * nic }')mbit" --nic-rate "${nic}mbit" -- \
  "$strata" "${job[@]}" ${PACE:+--pace "$PACE"} --chart "$out/placements.svg" --machine-file "$out/measured.toml" \
  --json-file "$out/placements.json" "${options[@]}"
