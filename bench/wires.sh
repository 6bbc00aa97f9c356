#!/bin/bash
# wires.sh DATA [STEPS]: one job on eight ranks over different wires, from the same first weights on the same data.
#
# DATA is a dataset's prefix with its _validation beside it, such as ./run leaves behind (runs/quickstart/data/text). Prints the
# losses as a table and draws them as wires.svg; runs and chart go to OUT (default build/wires). STRATA is the program, LAUNCH
# what starts eight ranks (default: mpirun -n 8 --oversubscribe).
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
strata=${STRATA:-$here/../build/release/bin/strata}
data=${1:?usage: wires.sh DATA [STEPS]}
steps=${2:-2000}
out=${OUT:-$here/../build/wires}
read -r -a launch <<< "${LAUNCH:-mpirun -n 8 --oversubscribe}"
mkdir -p "$out"
cat > "$out/job.toml" <<END
[model]
preset = "quickstart"
layers = 2
hidden = 128
ffn = 352
[data]
train = [{ path = "$(readlink -f "$data.bin")" }]
validation = "$(readlink -f "${data}_validation.bin")"
[batch]
global = 16
micro = 1
sequence = 64
[mesh]
levels = [2, 2, 2]
[placement]
preset = "zero-topo"
[optimizer]
lr = 1e-3
weight_decay = 0.1
schedule = { shape = "cosine", warmup = 0.05, min_lr = 1e-4 }
[run]
steps = $steps
threads = 1
log_every = 500
validate = { every = $steps, batches = 20 }
END
names=()
# run NAME KEY=VALUE...: trains once.
run() {
  local name=$1 each options=()
  for each in "${@:2}"; do options+=(--set "$each"); done
  "${launch[@]}" "$strata" train "$out/job.toml" --set "run.folder=$out/$name" "${options[@]}" --replace > "$out/$name.log" 2>&1 ||
    { tail -n 3 "$out/$name.log" >&2; exit 3; }
  names+=("$name")
}
full=()
for purpose in weights gradients reduction update; do full+=("placement.wires.$purpose=full"); done
run full-wires "${full[@]}"
run zero-topo
run zeropp placement.preset=zeropp
run zero-topo-int4-int8 placement.wires.reduction=int4 placement.wires.update=int8
run zero-topo-int4-int8-feedback placement.wires.reduction=int4 placement.wires.update=int8 placement.wires.error_feedback=true
"$here/curves.sh" "$out" "$steps" wires "${names[@]}"
