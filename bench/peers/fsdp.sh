#!/bin/bash
# fsdp.sh OUT [zero3|hsdp ...]: a step of Strata's zero3 and hsdp by level beside PyTorch FSDP2's, on the same links.
#
# The same model (27.3M parameters, fp32, two micro-batches, ../cluster/fsdp.toml and pytorch_fsdp.py), 8 ranks as two nodes of two
# packages of two, one thread a rank, in turn on a cluster with links of 2 and 0.5 Gb/s (bench/cluster). A line for each program
# and scheme, and how many times faster Strata is. Environment: STRATA, PYTORCH and PYTORCH_FSDP as for ../cluster/compare.sh and
# pytorch_fsdp.sh; PEERS_TUNE=... is STRATA_CLUSTER_TUNE for PyTorch's turn alone, if gloo does better on other windows.
# Exit code: 0 done, 2 bad input or no cluster, otherwise what failed.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
out=${1:?usage: fsdp.sh OUT [zero3|hsdp ...]}
shift
[[ $# -gt 0 ]] || set -- zero3 hsdp
cluster=$here/../cluster/cluster.sh
trap '"$cluster" --down' EXIT
for mode; do
  [[ $mode == zero3 || $mode == hsdp ]] || { echo "fsdp.sh: $mode is neither zero3 nor hsdp" >&2; exit 2; }
  JOB=$here/../cluster/fsdp.toml PACE='' NODES=2 NIC=500 NODE=4 "$here/../cluster/compare.sh" "$out/$mode" --placements "$mode" \
    --collectives levels --micro-batches 2 --device cpu --warm-up 1 --steps 3 > "$out-$mode.log"
  ours=$(sed -n '/"measured": {/,/}/s/.*"step_s": *\([0-9.e+-]*\).*/\1/p' "$out/$mode/placements.json" | head -n 1)
  echo "Strata $mode: $ours s a step"
  STRATA_CLUSTER_TUNE=${PEERS_TUNE-${STRATA_CLUSTER_TUNE-}} "$cluster" --up --nodes 2 --node-rate 2gbit --nic-rate 500mbit
  said=$("$here/pytorch_fsdp.sh" "$mode")
  "$cluster" --down
  echo "$said"
  theirs=$(sed -n 's/.*"s_per_step": *\([0-9.e+-]*\).*/\1/p' <<< "$said")
  awk -v ours="$ours" -v theirs="$theirs" -v mode="$mode" 'BEGIN { printf "%s: Strata is %.2f times as fast\n", mode, theirs / ours }'
done
