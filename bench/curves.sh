#!/bin/bash
# curves.sh OUT STEPS CHART NAME...: runs side by side.
#
# OUT/NAME/metrics.jsonl are what strata train wrote, STEPS long, each with one validation at its end. Prints their losses as a
# table, the first being what the others are compared with, and draws them as OUT/CHART.svg.
set -euo pipefail
out=${1:?usage: curves.sh OUT STEPS CHART NAME...} steps=$2 chart=$3
names=("${@:4}")

# number KEY LINE: the number behind "KEY": in a line of metrics.jsonl; all of that file's lines are one object each.
read -r -d '' library <<'END' || true
function number(key,   at) { at = match($0, "\"" key "\":[-+0-9.eE]+"); return at ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : "" }
END
printf '%-28s %18s %16s %9s %9s %8s\n' run 'last 100 steps' 'validation' 'to first' 'skipped' 'bytes'
reference=
for name in "${names[@]}"; do
  row=$(awk -v last="$((steps - 100))" "$library"'
    /"record":"step"/ { if (number("step") > last) { sum += number("loss"); ++count } skipped += /"skipped":true/; bytes = number("memory_planned") }
    /"record":"validation"/ { validation = number("loss") }
    END { printf "%.5f %.5f %d %.0f", sum / count, validation, skipped, bytes }' "$out/$name/metrics.jsonl")
  read -r mean validation skipped bytes <<< "$row"
  reference=${reference:-$validation}
  awk -v name="$name" -v mean="$mean" -v validation="$validation" -v reference="$reference" -v skipped="$skipped" -v bytes="$bytes" 'BEGIN {
    printf "%-28s %18.4f %16.4f %8.2f%% %9d %7.0fM\n", name, mean, validation, 100 * (validation / reference - 1), skipped, bytes / 1e6 }'
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
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"960\" height=\"390\" font-family=\"sans-serif\" font-size=\"12\">"
    print "<rect width=\"960\" height=\"390\" fill=\"white\"/>"
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
  }' "$out/points.txt" > "$out/$chart.svg"
echo "chart: $out/$chart.svg"
