#!/bin/bash
# step.sh [BATCHxSEQ ...]: training steps of GPT-2 124M by Strata and by PyTorch, one after the other, and their ratios.
#
# STRATA is the program (default: build/release/bin/strata), PYTORCH the command that runs a Python with PyTorch (default: python3;
# "chroot DIR python3" for one in a tree of its own, with this folder bound or copied there as PYTORCH_STEP), THREADS both
# sides' threads (default 2), ROUNDS how often each pair is run (default 1; the best of each side counts).
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
strata=${STRATA:-$here/../../build/release/bin/strata}
python=${PYTORCH:-python3}
script=${PYTORCH_STEP:-$here/pytorch_step.py}
threads=${THREADS:-2}
[[ -x $strata ]] || { echo "step.sh: no program $strata: build with ./run or set STRATA" >&2; exit 2; }

# field NAME: a number out of a JSON object on standard input.
field() { grep -o "\"$1\": *[0-9.e+-]*" | head -n 1 | sed 's/.*: *//'; }
# best COMMAND...: the highest tokens_per_s of ROUNDS runs.
best() {
  for ((round = 0; round < ${ROUNDS:-1}; round++)); do "$@" | field tokens_per_s; done | sort -g | tail -n 1
}
run_strata() { "$strata" bench step --model gpt2-124m --batch "$1" --seq "$2" --dtype "$3" --threads "$threads" --json; }
run_pytorch() { $python "$script" --batch "$1" --seq "$2" --dtype "$3" --threads "$threads"; }

printf '%-10s %14s %14s %14s %14s %10s %10s\n' 'batch x seq' 'PyTorch fp32' 'PyTorch bf16' 'Strata fp32' 'Strata bf16' 'fp32 ratio' 'bf16 ratio'
for size in "${@:-4x256}"; do
  batch=${size%x*} seq=${size#*x}
  p32=$(best run_pytorch "$batch" "$seq" fp32)
  s32=$(best run_strata "$batch" "$seq" fp32)
  p16=$(best run_pytorch "$batch" "$seq" bf16)
  s16=$(best run_strata "$batch" "$seq" bf16)
  awk -v size="$size" -v p32="$p32" -v p16="$p16" -v s32="$s32" -v s16="$s16" 'BEGIN {
    better = p32 > p16 ? p32 : p16
    printf "%-10s %14.0f %14.0f %14.0f %14.0f %10.2f %10.2f\n", size, p32, p16, s32, s16, s32 / p32, s16 / better
  }'
done
echo "tokens/s with $threads threads; ratios: fp32 over fp32, bf16 over PyTorch's better type"
