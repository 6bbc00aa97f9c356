#!/bin/bash
# host.sh [-OPTION ...] HOST COMMAND LINE: stands in for ssh between the hosts of a cluster that cluster.sh made.
#
# Runs the command line in the network namespace HOST, under that host name and with a /dev/shm of its own, where the MPI
# library's session files lie as well; both go with the command, so nothing is left to remove. Called by cluster.sh and mpirun.
# STRATA_CLUSTER_HOSTS is a file that stands in for /etc/hosts there.
# Exit code: the command's; 2 bad arguments, otherwise not 0 when the host cannot be entered.
set -euo pipefail
while [[ ${1-} == -* ]]; do shift; done
[[ $# -ge 2 ]] || { echo "usage: host.sh [-OPTION ...] HOST COMMAND LINE" >&2; exit 2; }
host=$1
shift
# As ssh does, the words are joined into one line for a shell.
exec nsenter --net="/run/netns/$host" unshare --uts --mount /bin/bash -c '
  set -euo pipefail
  echo "$1" > /proc/sys/kernel/hostname
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm
  [[ -z $2 || ! -e /etc/hosts ]] || mount --bind "$2" /etc/hosts
  exec /bin/bash -c "$3"' host.sh "$host" "${STRATA_CLUSTER_HOSTS-}" "$*"
