#!/bin/bash
# cluster.sh [OPTIONS] -- PROGRAM ARGUMENTS...: an MPI job over links of three speeds, on one machine.
#
# Makes a cluster of network namespaces, runs PROGRAM on all its ranks as one MPI job, and takes everything away again, however
# the job ends. For several jobs in one cluster:
#   cluster.sh --up [OPTIONS]                  makes it and leaves it there
#   cluster.sh --run -- PROGRAM ARGUMENTS...   one job in it; the next when that has ended
#   cluster.sh --down (or --clean)             removes it, or what is left of one whose cluster.sh was killed with SIGKILL
#
# Options:
#   --nodes N         nodes (default 2)
#   --packages P      packages in a node (default 2), each a host of its own: NAME-p0, NAME-p1, ..., node by node
#   --ranks R         ranks in a package (default 2), which share memory; ranks are in the order of their hosts
#   --node-rate RATE  of each package's link to the packages of its node, each way (default 4gbit)
#   --nic-rate RATE   of each package's link to all other nodes, each way (default 1gbit)
#   --mtu BYTES       largest packet (default 9000)
# A RATE is a number with mbit or gbit, from 10mbit to 100gbit. Environment: STRATA_CLUSTER is the NAME (default strata), MPIRUN
# the launcher (default mpirun), of Open MPI 4 or MPICH 4; the library's own variables hold for the job. STRATA_CLUSTER_TUNE has
# other choices to measure: "congestion=reno window_us=5000 burst_us=1000" are those made (a longer window for many ranks a core).
# Needs root, iproute2, util-linux and procps. How the links are made, and what they carry: README.md.
# Exit code: PROGRAM's; 2 bad input or nothing to run on, 3 the cluster could not be made, 128 + signal when interrupted.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
fail() { echo "cluster.sh: $1" >&2; exit 2; }

verb='' nodes=2 packages=2 ranks=2 node_rate=4gbit nic_rate=1gbit mtu=9000 shaped=''
program=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --help | -h) sed -n '2,23s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --up | --run | --down | --clean)
      [[ -z $verb ]] || fail "$verb and $1 at once"
      verb=$1
      ;;
    --nodes | --packages | --ranks | --node-rate | --nic-rate | --mtu)
      [[ $# -ge 2 ]] || fail "$1 needs a value"
      shaped=$1
      option=${1#--}
      declare "${option//-/_}=$2"
      shift
      ;;
    --) shift; program=("$@"); break ;;
    *) fail "what is $1? (--help)" ;;
  esac
  shift
done

# whole OPTION VALUE LEAST MOST
whole() { [[ $2 =~ ^[1-9][0-9]{0,5}$ && $2 -ge $3 && $2 -le $4 ]] || fail "$1 $2: not a whole number of $3 to $4"; }
# rate OPTION RATE: sets `bits`, bits a second.
rate() {
  [[ $2 =~ ^([0-9]{1,6})(\.([0-9]{1,3}))?(mbit|gbit)$ ]] || fail "$1 $2: not a rate such as 500mbit or 2.5gbit"
  local fraction=${BASH_REMATCH[3]}000 unit=1000
  [[ ${BASH_REMATCH[4]} == mbit ]] || unit=1000000
  bits=$(((10#${BASH_REMATCH[1]} * 1000 + 10#${fraction:0:3}) * unit))
  [[ $bits -ge 10000000 && $bits -le 100000000000 ]] || fail "$1 $2: not a rate of 10mbit to 100gbit"
}
whole --nodes "$nodes" 1 64
whole --packages "$packages" 1 64
whole --ranks "$ranks" 1 64
whole --mtu "$mtu" 576 65000
hosts=$((nodes * packages))
[[ $hosts -le 64 ]] || fail "--nodes $nodes x --packages $packages: more than 64 hosts"
rate --node-rate "$node_rate"; node_bits=$bits
rate --nic-rate "$nic_rate"; nic_bits=$bits
case $verb in
  '' | --run)
    [[ ${#program[@]} -gt 0 ]] || fail "nothing to run: end with -- PROGRAM ARGUMENTS... (--help)"
    [[ -z $verb || -z $shaped ]] || fail "$shaped is for making a cluster, and --run takes the one that is there"
    ;;
  *) [[ ${#program[@]} -eq 0 ]] || fail "$verb runs no program" ;;
esac
# How many ranks take turns on a core says how late one answers what has come: links stay busy only if more is under way meanwhile.
turns=$((hosts * ranks / $(nproc)))
congestion=reno window_us=$((turns > 4 ? 2500 * turns : 5000)) burst_us=1000
for choice in ${STRATA_CLUSTER_TUNE-}; do
  case $choice in
    congestion=[a-z]*) congestion=${choice#*=} ;;
    window_us=*) window_us=${choice#*=}; whole window_us "$window_us" 10 100000 ;;
    burst_us=*) burst_us=${choice#*=}; whole burst_us "$burst_us" 10 100000 ;;
    *) fail "STRATA_CLUSTER_TUNE: what is $choice?" ;;
  esac
done
cluster=${STRATA_CLUSTER:-strata}
[[ $cluster =~ ^[a-z][a-z0-9]{0,15}$ ]] || fail "STRATA_CLUSTER=$cluster: not a short name of small letters and digits"

[[ $EUID -eq 0 ]] || fail "making network namespaces takes root"
for tool in ip:iproute2 tc:iproute2 unshare:util-linux nsenter:util-linux setpriv:util-linux setsid:util-linux \
  flock:util-linux mount:mount pgrep:procps pkill:procps; do
  command -v "${tool%:*}" > /dev/null || fail "needs ${tool%:*}: apt-get install ${tool#*:}"
done
launcher=${MPIRUN:-mpirun}
if [[ -z $verb || $verb == --run ]]; then
  command -v "$launcher" > /dev/null || fail "needs $launcher: apt-get install openmpi-bin, or set MPIRUN"
  case $("$launcher" --version 2>&1) in
    *'Open MPI'* | *OpenRTE*) library=openmpi ;;
    *HYDRA*) library=mpich ;;
    *) fail "$launcher is the launcher neither of Open MPI nor of MPICH" ;;
  esac
fi

# Here as long as the cluster is: its shape, its host names, and the hosts of a job.
state=/run/$cluster-cluster
# Held while a cluster is made, used or removed, and by this process only: nothing that it starts inherits it.
mkdir -p /run/lock
exec 9> "/run/lock/$cluster-cluster"
flock --nonblock 9 || fail "another cluster.sh is at work on the cluster $cluster: wait until it ends, or stop it"

namespaces() { ip netns list | sed -n "s/^\($cluster-\(switch\|p[0-9]*\)\)\( .*\)\{0,1\}$/\1/p"; }
# Processes that are in one of the namespaces.
inhabitants() {
  local inodes
  inodes=$(namespaces | sed 's|^|/run/netns/|' | xargs --no-run-if-empty stat --format %i 2> /dev/null) || true
  [[ -n $inodes ]] || return 0
  { stat --dereference --format '%i %n' /proc/[0-9]*/ns/net 2> /dev/null || true; } | awk -v inodes="$inodes" '
    BEGIN { split(inodes, each, "\n"); for (i in each) here[each[i]] }
    $1 in here { split($2, path, "/"); print path[3] }'
}
remove() {
  local pids
  for _ in $(seq 50); do
    mapfile -t pids < <(inhabitants)
    [[ ${#pids[@]} -gt 0 ]] || break
    kill -KILL "${pids[@]}" 2> /dev/null || true
    sleep 0.1
  done
  namespaces | sed 's/^/netns delete /' | ip -batch - || true
  rm -rf "$state"
}

job='' patience='' stopped='' owned='' making=''
# A launcher ends its ranks when asked to. Who asks twice, or waits for ten seconds, wants it over.
stop() {
  [[ -n $job && -z $stopped ]] || { stopped=$1; finish; }
  stopped=$1
  pkill -TERM --parent "$job" || true
  { sleep 10 && kill -KILL "$job"; } > /dev/null 2>&1 9>&- &
  patience=$!
}
finish() {
  local code=$?
  trap '' HUP INT TERM
  trap - EXIT
  [[ -z $patience ]] || pkill --parent "$patience" || true  # its sleep, and so itself
  [[ -z $job ]] || kill -KILL "$job" 2> /dev/null || true
  [[ -z $owned ]] || remove
  [[ -z $making || $code -eq 0 ]] || code=3
  [[ -z $stopped ]] || code=$((128 + stopped))
  exit "$code"
}
trap finish EXIT
trap 'stop 1' HUP
trap 'stop 2' INT
trap 'stop 15' TERM

# What a kernel or a container may not give, tried where it is gone at once.
probe() {
  unshare --net --uts --mount --pid --fork /bin/bash -c 'set -e
    mount -t tmpfs tmpfs /dev/shm
    ip link add bridge type bridge
    ip link add one type veth peer name two
    tc qdisc add dev one root handle 1: htb default 2
    tc class add dev one parent 1: classid 1:2 htb rate 1gbit
    tc qdisc add dev one parent 1:2 bfifo limit 100000
    tc filter add dev one parent 1: protocol ip u32 match ip dst 10.77.0.10/32 flowid 1:2' 2>&1
}

address() { echo "10.77.0.$((10 + $1))"; }
# within LEAST VALUE MOST
within() { echo $(($2 < $1 ? $1 : $2 > $3 ? $3 : $2)); }
# What a connection may have under way on a link of so many bits a second.
window() { within $((4 * mtu)) $(($1 / 8 * window_us / 1000000)) 16777216; }

# two_links DEVICE dst|src HOST: tc's lines for what a device sends, as two links told apart by the other end's address.
two_links() {
  local each burst class=1 first=$(($3 / packages * packages))
  echo "qdisc add dev $1 root handle 1: htb default 2"
  for bits in "$node_bits" "$nic_bits"; do
    # A timer that comes late is made up for, by what the burst allows; more, and short messages would find no limit.
    burst=$((bits / 8 * burst_us / 1000000 + mtu))
    echo "class add dev $1 parent 1: classid 1:$class htb rate ${bits}bit burst $burst cburst $burst quantum 60000"
    # Windows bound the queue; a packet is never dropped, since TCP would take hundreds of milliseconds to notice.
    echo "qdisc add dev $1 parent 1:$class bfifo limit 1000000000"
    class=$((class + 1))
  done
  for ((each = first; each < first + packages; each++)); do
    echo "filter add dev $1 parent 1: protocol ip u32 match ip $2 $(address "$each")/32 flowid 1:1"
  done
}

# own_end HOST: ip's lines for a host's own end of its links.
own_end() {
  local each first=$(($1 / packages * packages))
  echo "link set lo up"
  echo "link set eth0 addrgenmode none"
  echo "link set eth0 mtu $mtu up"
  echo "address add $(address "$1")/24 dev eth0 noprefixroute"
  echo "route add 10.77.0.0/24 dev eth0 congctl $congestion window $(window "$nic_bits")"
  for ((each = first; each < first + packages; each++)); do
    [[ $each -eq $1 ]] || echo "route add $(address "$each") dev eth0 congctl $congestion window $(window "$node_bits")"
  done
}

make() {
  local i said buffer
  said=$(probe) || fail "this kernel or container does not give namespaces, veth, bridge and htb: ${said//$'\n'/; }"
  owned=1 making=1
  mkdir "$state"
  {
    echo "127.0.0.1 localhost"
    for ((i = 0; i < hosts; i++)); do echo "$(address $i) $cluster-p$i"; done
  } > "$state/hosts"
  {
    echo "netns add $cluster-switch"
    for ((i = 0; i < hosts; i++)); do echo "netns add $cluster-p$i"; done
  } | ip -batch -
  {
    echo "link add bridge type bridge"
    echo "link set bridge addrgenmode none mtu $mtu up"
    for ((i = 0; i < hosts; i++)); do
      echo "link add s$i type veth peer name eth0 netns $cluster-p$i"
      echo "link set s$i addrgenmode none mtu $mtu master bridge up"
    done
  } | ip -netns "$cluster-switch" -batch -
  for ((i = 0; i < hosts; i++)); do two_links "s$i" src $i; done | tc -netns "$cluster-switch" -batch -
  buffer=$((4 * $(window $((node_bits > nic_bits ? node_bits : nic_bits)))))
  for ((i = 0; i < hosts; i++)); do
    own_end $i | ip -netns "$cluster-p$i" -batch -
    two_links eth0 dst $i | tc -netns "$cluster-p$i" -batch -
    # Receive buffers are not left to grow, or the routes' windows would follow them. Only reno may be set here in every kernel;
    # it is for a host's connections to itself.
    nsenter --net="/run/netns/$cluster-p$i" /bin/bash -c '
      set -e
      cd /proc/sys/net/ipv4
      echo reno > tcp_congestion_control
      echo 0 > tcp_moderate_rcvbuf
      echo 0 > tcp_slow_start_after_idle
      echo 1 > tcp_no_metrics_save
      echo "4096 $1 $1" > tcp_rmem
      echo "4096 65536 $1" > tcp_wmem' cluster.sh "$buffer"
  done
  echo "$hosts $ranks $node_bits $nic_bits" > "$state/shape"
  making=''
}

# A large message goes in pieces, each when the receiver has asked for it: two at a time, so that what it asks does not wait
# behind much of the other direction, nor a small message behind much of its own. A piece is about half a millisecond of the NIC;
# no less than a sixteenth of one of the node's link, which ranks could not keep busy; a power of two, so that few are cut short.
openmpi_job() {
  local piece=8192 wanted=$((nic_bits / 16000)) least=$((node_bits / 125000))
  wanted=$(within "$least" "$wanted" 131072)
  while ((4 * piece < 3 * wanted)); do piece=$((2 * piece)); done
  sed "s/$/ slots=$ranks/" "$state/names" > "$state/hostfile"
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export OMPI_MCA_plm_rsh_agent=$here/host.sh OMPI_MCA_orte_tmpdir_base=/dev/shm OMPI_MCA_oob_tcp_if_include=eth0
  export OMPI_MCA_btl=${OMPI_MCA_btl-tcp,vader,self} OMPI_MCA_btl_tcp_if_include=eth0
  export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle-1}
  export OMPI_MCA_btl_tcp_rdma_pipeline_frag_size=${OMPI_MCA_btl_tcp_rdma_pipeline_frag_size-$piece}
  export OMPI_MCA_pml_ob1_recv_pipeline_depth=${OMPI_MCA_pml_ob1_recv_pipeline_depth-2}
  command=("$launcher" --hostfile "$state/hostfile" --map-by slot --bind-to none -n $((hosts * ranks)))
}
mpich_job() {
  sed "s/$/:$ranks/" "$state/names" > "$state/hostfile"
  command=("$launcher" -f "$state/hostfile" -launcher ssh -launcher-exec "$here/host.sh" -iface eth0 -n $((hosts * ranks)))
}

run_job() {
  local command code=0
  read -r hosts ranks node_bits nic_bits < "$state/shape"
  for ((i = 0; i < hosts; i++)); do echo "$cluster-p$i"; done > "$state/names"
  export STRATA_CLUSTER_HOSTS=$state/hosts
  "${library}_job"
  # The launcher is the first process of a namespace, with which all others of the job end; it ends with this script.
  # In a session of its own, or Ctrl-C would come to it twice.
  setsid setpriv --pdeathsig KILL unshare --pid --fork --kill-child --mount-proc \
    "$here/host.sh" "$cluster-p0" "exec $(printf '%q ' "${command[@]}" "${program[@]}")" <&0 9>&- &
  job=$!
  # A signal ends the wait, not the job.
  while kill -0 "$job" 2> /dev/null; do
    code=0
    wait "$job" || code=$?
  done
  job=''
  return "$code"
}

case $verb in
  --down | --clean) remove; exit 0 ;;
  --run) [[ -s $state/shape ]] || fail "there is no cluster $cluster: make one with cluster.sh --up" ;;
  *)
    [[ ! -e $state && -z $(namespaces) ]] ||
      fail "a cluster $cluster, or what is left of one, is there already: cluster.sh --down removes it"
    make
    ;;
esac
[[ $verb == --up ]] && { owned=''; exit 0; }
run_job
