#!/bin/bash
# precision.sh DATA [STEPS]: one job in every precision, from the same first weights on the same data.
#
# DATA is a dataset's prefix with its _validation beside it and its tokenizer as DATA.model, such as ./run leaves behind
# (build/quickstart/data/...). Prints the losses as a table and writes them as a chart to precision.svg; runs and chart go to
# OUT (default build/precision). STRATA is the program, THREADS its threads (default 2).
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
strata=${STRATA:-$here/../build/release/bin/strata}
data=${1:?usage: precision.sh DATA [STEPS]}
steps=${2:-2000}
out=${OUT:-$here/../build/precision}
mkdir -p "$out"
cat > "$out/job.toml" <<END
[model]
preset = "quickstart"
[data]
train = [{ path = "$(readlink -f "$data.bin")" }]
validation = "$(readlink -f "${data}_validation.bin")"
[batch]
global = 4
micro = 4
sequence = 128
[optimizer]
lr = 1e-3
weight_decay = 0.1
schedule = { shape = "cosine", warmup = 0.05, min_lr = 1e-4 }
[run]
steps = $steps
threads = ${THREADS:-2}
log_every = 500
validate = { every = $steps, batches = 40 }
END
names=(fp32 bf16 fp16 fp32-adamw8bit bf16-adamw8bit)
for name in "${names[@]}"; do
  options=(--set "precision.compute=${name%%-*}" --set "run.folder=$out/$name")
  [[ $name == *-adamw8bit ]] && options+=(--set optimizer.name=adamw8bit)
  "$strata" train "$out/job.toml" "${options[@]}" --replace > "$out/$name.log" || { tail -n 3 "$out/$name.log" >&2; exit 3; }
done

"$here/curves.sh" "$out" "$steps" precision "${names[@]}"
