#!/bin/bash
# pytorch_fsdp.sh zero3|hsdp [OPTIONS of pytorch_fsdp.py]: a step of PyTorch's FSDP2 over the links of a cluster that is up.
#
# The cluster is made before, and removed after, with ../cluster/cluster.sh --up and --down. PYTORCH is the command that runs a
# Python with PyTorch on every rank (default: python3; "chroot DIR python3" for one in a tree of its own, with pytorch_fsdp.py
# copied there and named by PYTORCH_FSDP). Prints one line of JSON.
# Exit code: 0 done, 2 bad input or no cluster, otherwise what a rank failed with.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
read -r -a python <<< "${PYTORCH:-python3}"
[[ ${1-} == zero3 || ${1-} == hsdp ]] || { echo "usage: pytorch_fsdp.sh zero3|hsdp [OPTIONS of pytorch_fsdp.py]" >&2; exit 2; }
# The first host's address is where all ranks meet; gloo takes the interface that has the links.
export MASTER_ADDR=10.77.0.10 MASTER_PORT=29501 GLOO_SOCKET_IFNAME=eth0
exec "$here/../cluster/cluster.sh" --run -- "${python[@]}" "${PYTORCH_FSDP:-$here/pytorch_fsdp.py}" "$@"
