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

# number KEY LINE: the number behind "KEY": in a line of metrics.jsonl; all of that file's lines are one object each.
read -r -d '' library <<'END' || true
function number(key,   at) { at = match($0, "\"" key "\":[-+0-9.eE]+"); return at ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : "" }
END
printf '%-16s %18s %16s %9s %9s %8s\n' run 'last 100 steps' 'validation' 'to fp32' 'skipped' 'bytes'
reference=
for name in "${names[@]}"; do
  row=$(awk -v last="$((steps - 100))" "$library"'
    /"record":"step"/ { if (number("step") > last) { sum += number("loss"); ++count } skipped += /"skipped":true/; bytes = number("memory_planned") }
    /"record":"validation"/ { validation = number("loss") }
    END { printf "%.5f %.5f %d %.0f", sum / count, validation, skipped, bytes }' "$out/$name/metrics.jsonl")
  read -r mean validation skipped bytes <<< "$row"
  reference=${reference:-$validation}
  awk -v name="$name" -v mean="$mean" -v validation="$validation" -v reference="$reference" -v skipped="$skipped" -v bytes="$bytes" 'BEGIN {
    printf "%-16s %18.4f %16.4f %8.2f%% %9d %7.0fM\n", name, mean, validation, 100 * (validation / reference - 1), skipped, bytes / 1e6 }'
done

# The chart: means over fiftieths of the run.
for name in "${names[@]}"; do
  awk -v name="$name" -v width="$((steps / 50))" "$library"'
    /"record":"step"/ { sum += number("loss"); if (++count == width) { printf "%s %d %.5f\n", name, number("step"), sum / count; sum = count = 0 } }' \
    "$out/$name/metrics.jsonl"
done > "$out/points.txt"
awk -v steps="$steps" '
  { x[NR] = $2; y[NR] = $3; run[NR] = $1; if (!($1 in seen)) { seen[$1] = ++runs; names[runs] = $1 }
    if (NR == 1 || $3 > high) high = $3; if (NR == 1 || $3 < low) low = $3 }
  function px(s) { return 60 + 640 * s / steps }
  function py(l) { return 340 - 310 * (l - low) / (high - low) }
  END {
    split("#222222 #0072b2 #d55e00 #009e73 #cc79a7", colour, " ")
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"390\" font-family=\"sans-serif\" font-size=\"12\">"
    print "<rect width=\"860\" height=\"390\" fill=\"white\"/>"
    for (i = 0; i <= 4; ++i) {
      l = low + (high - low) * i / 4; s = steps * i / 4
      printf "<line x1=\"60\" x2=\"700\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#dddddd\"/><text x=\"52\" y=\"%.1f\" text-anchor=\"end\">%.2f</text>\n", py(l), py(l), py(l) + 4, l
      printf "<text x=\"%.1f\" y=\"358\" text-anchor=\"middle\">%d</text>\n", px(s), s
    }
    print "<text x=\"380\" y=\"380\" text-anchor=\"middle\">step</text><text x=\"60\" y=\"18\">training loss, nats a token</text>"
    for (r = 1; r <= runs; ++r) {
      printf "<polyline fill=\"none\" stroke-width=\"1.5\" stroke=\"%s\" points=\"", colour[r]
      for (i = 1; i <= NR; ++i) if (run[i] == names[r]) printf "%.1f,%.1f ", px(x[i]), py(y[i])
      printf "\"/>\n<line x1=\"715\" x2=\"735\" y1=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\"/><text x=\"742\" y=\"%d\">%s</text>\n", 30 + 20 * r, 30 + 20 * r, colour[r], 34 + 20 * r, names[r]
    }
    print "</svg>"
  }' "$out/points.txt" > "$out/precision.svg"
echo "chart: $out/precision.svg"
