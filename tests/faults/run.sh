#!/bin/bash
# run.sh STRATA FAULT: a small job on four ranks under mpirun, and what becomes of it.
#
#   kill      a rank is killed: each other says, within run.timeout, what it waited for and for whom; nothing is left
#   stop      a rank is stopped and never goes on: the same
#   disagree  ranks that cannot run together say so once, before the first step, with exit code 2
set -euo pipefail
strata=$1 fault=$2
launcher=$(command -v mpirun || true)
[[ -n $launcher ]] || { echo "SKIPPED: no mpirun here"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $1"; [[ ! -f $folder/out ]] || tail -n 40 "$folder/out"; exit 1; }

# mpirun of either library; only Open MPI's has to be told that there may be more ranks than cores.
options=() patient=()
if "$launcher" --version 2>&1 | grep -q 'Open MPI\|OpenRTE'; then
  options=(--oversubscribe)
  # Where ranks are lost our own watchdog is what is tested, not the launcher's.
  patient=(--mca orte_abort_on_non_zero_status 0)
fi

for i in $(seq 3000); do echo "word $((i * 7919 % 101)) and word $((i * 104729 % 53))"; done > "$folder/text.txt"
"$strata" data build --text "$folder/text.txt" --bytes --out "$folder/text" > /dev/null
cat > "$folder/job.toml" <<JOB
[model]
family = "llama"
layers = 2
hidden = 32
heads = 2
ffn = 64
vocab = 257
sequence = 32
[data]
train = [{ path = "text" }]
[batch]
global = 8
micro = 1
[mesh]
levels = [2, 2, 1]
[placement]
preset = "zero-topo"
[run]
steps = 1000000
threads = 1
timeout = 4
folder = "$folder/run"
JOB

# Starts the job in the background on four ranks and waits until it has made steps.
start() {
  "$launcher" "${options[@]}" "${patient[@]}" -n 4 "$strata" train "$folder/job.toml" "$@" > "$folder/out" 2>&1 &
  mpirun=$!
  for _ in $(seq 300); do
    [[ $(grep -c '"record":"step"' "$folder/run/metrics.jsonl" 2> /dev/null || true) -gt 3 ]] && break
    kill -0 "$mpirun" 2> /dev/null || fail "the run ended by itself"
    sleep 0.1
  done
  mapfile -t pids < <(pgrep -f "^$strata train $folder/job.toml" | sort -n)
  [[ ${#pids[@]} -eq 4 ]] || fail "there are ${#pids[@]} ranks, not 4"
}

rank_of() { tr '\0' '\n' < "/proc/$1/environ" | sed -n 's/^\(OMPI_COMM_WORLD_RANK\|PMI_RANK\)=//p' | head -n 1; }

# All processes of the run are gone within ten seconds of mpirun's end.
no_orphans() {
  for _ in $(seq 100); do
    pgrep -f "$folder/job.toml" > /dev/null || return 0
    sleep 0.1
  done
  fail "processes are left: $(pgrep -fa "$folder/job.toml")"
}

lose_a_rank() {
  local signal=$1 victim='' pid rank line before code=0
  start
  for pid in "${pids[@]}"; do
    [[ $(rank_of "$pid") == 2 ]] && victim=$pid
  done
  kill "-$signal" "$victim"
  before=$SECONDS
  wait "$mpirun" || code=$?
  [[ $code -ne 0 ]] || fail "mpirun says that all went well"
  [[ $((SECONDS - before)) -le 30 ]] || fail "it took $((SECONDS - before)) s with a time limit of 4"
  no_orphans
  for rank in 0 1 3; do
    line=$(grep "strata: rank $rank: " "$folder/out" || true)
    # In a transfer of the step, or in what ranks settle between steps.
    [[ $line =~ \ of\ .*\ over\ (package|node).*sequence\ [0-9]+:\ no\ word\ from\ rank ||
      $line =~ (counting|asking)[^:]*:\ no\ word\ from\ rank ]] || fail "rank $rank did not say for whom it waited"
    grep -q 'no word from rank' "$folder/run/log/rank-$rank.log" || fail "rank $rank's log does not say why it ended"
  done
  grep -q 'no word from rank.* 2' "$folder/out" || fail "nobody named rank 2"
  echo "passed: exit code $code after $((SECONDS - before)) s"
}

# expect CODE TEXT ARGUMENTS...: mpirun with these arguments ends with the code, and the text is said exactly once.
expect() {
  local code=$1 text=$2 got=0
  shift 2
  timeout 60 "$launcher" "${options[@]}" "$@" > "$folder/out" 2>&1 || got=$?
  [[ $got -eq $code ]] || fail "exit code $got, not $code: $*"
  [[ $(grep -c -e "$text" "$folder/out") -eq 1 ]] || fail "said $(grep -c -e "$text" "$folder/out") times, not once: $text"
  no_orphans
}

disagree() {
  job=$folder/job.toml
  expect 2 'ranks\? 2, 3 of 4 were given another job than rank 0' \
    -n 2 "$strata" train "$job" : -n 2 "$strata" train "$job" --set optimizer.lr=0.5
  cp "$strata" "$folder/other"
  printf x >> "$folder/other"
  expect 2 'rank 3 of 4 run another strata program than rank 0' \
    -n 3 "$strata" train "$job" : -n 1 "$folder/other" train "$job"
  expect 2 'rank 1: .*missing.toml' -n 1 "$strata" train "$job" : -n 3 "$strata" train "$folder/missing.toml"
  expect 2 'mesh.levels: 3 package x 2 node' -n 4 "$strata" train "$job" --set mesh.levels='[3, 2, 1]'
  sed 's/^preset = "zero-topo"/gradients = "node"\noptimizer = "package"/' "$job" > "$folder/narrow.toml"
  expect 2 'optimizer over package is narrower' -n 4 "$strata" train "$folder/narrow.toml"
  expect 2 'batch.global 6 = ' -n 4 "$strata" train "$job" --set batch.global=6
  expect 2 'nothing.bin' -n 4 "$strata" train "$job" --set data.train='[{ path = "'"$folder"'/nothing" }]'
  echo passed
}

case $fault in
  kill) lose_a_rank KILL ;;
  stop) lose_a_rank STOP ;;
  disagree) disagree ;;
  *) echo "run.sh: no fault $fault" >&2; exit 2 ;;
esac
