#!/bin/bash
# run.sh STRATA PART: bench/cluster/cluster.sh, on a cluster with a name of its own beside whatever cluster a user has up.
#
#   refuses  bad arguments, another user, missing tools, a kernel without what it takes; a cluster half made is taken away
#   runs     ranks in order, memory shared within a package only, rates as asked for, exit codes, one cluster for several jobs
#   ends     however a job ends, nothing is left; what a killed cluster.sh leaves is refused until it is removed
# Exit code: 0 passed, 1 failed, 2 bad argument, 77 no cluster can be made here.
set -euo pipefail
[[ $# -eq 2 ]] || { echo "usage: run.sh STRATA refuses|runs|ends" >&2; exit 2; }
strata=$1 part=$2
cluster=$(cd "$(dirname "$0")/../.." && pwd)/bench/cluster/cluster.sh
export STRATA_CLUSTER=stratatest
skip() { echo "SKIPPED: no cluster can be tested here: $1"; exit 77; }
[[ $EUID -eq 0 ]] || skip "it takes root"
for tool in ip tc unshare nsenter setpriv setsid flock pgrep mpirun; do
  command -v $tool > /dev/null || skip "there is no $tool"
done
possible() { "$@" > /dev/null 2>&1 || skip "this kernel or container does not allow: $*"; }
possible unshare --net --uts --mount --pid --fork mount -t tmpfs tmpfs /dev/shm
possible unshare --net ip link add bridge type bridge
possible unshare --net ip link add one type veth peer name two
possible unshare --net tc qdisc add dev lo root handle 1: htb default 2
exec 8> /run/lock/stratatest-tests
flock --wait 240 8 || skip "other tests of a cluster are at work"
possible ip netns add stratatest-probe
ip netns delete stratatest-probe

folder=$(mktemp -d)
run() { "$cluster" "$@" 8>&-; }
tidy() {
  [[ -z ${script-} ]] || kill -KILL "$script" 2> /dev/null || true
  run --clean > /dev/null 2>&1 || true
  rm -rf "$folder"
}
trap tidy EXIT
fail() { echo "FAILED: lines ${BASH_LINENO[*]}: $1"; [[ ! -s $folder/said ]] || tail -n 40 "$folder/said"; exit 1; }
run --clean || skip "what another test left cannot be removed"

# nothing_left: no namespace, process or file of the cluster, and no link in this namespace.
links=$(ip -brief link | wc -l)
nothing_left() {
  local found
  found=$(ip netns list | grep stratatest || true; pgrep -fa 'stratatest-p[0-9]' || true
    find /run /tmp /dev/shm -maxdepth 1 -name '*stratatest*')
  [[ -z $found ]] || fail "left after $1: $found"
  [[ $(ip -brief link | wc -l) -eq $links ]] || fail "links are left after $1"
}
# said CODE TEXT COMMAND...: it ends with the code, and the text is in what it says.
said() {
  local wanted=$1 text=$2 code=0
  "${@:3}" > "$folder/said" 2>&1 8>&- < /dev/null || code=$?
  [[ $code -eq $wanted ]] || fail "exit code $code, not $wanted: ${*:3}"
  [[ "$(< "$folder/said")" == *"$text"* ]] || fail "did not say '$text': ${*:3}"
}
# refused TEXT COMMAND...: exit code 2 and one line.
refused() {
  said 2 "$@"
  [[ $(wc -l < "$folder/said") -eq 1 ]] || fail "more than one line: ${*:2}"
}

refuses() {
  local name
  refused 'nothing to run' "$cluster"
  refused 'nothing to run' "$cluster" --nodes 2 --
  refused 'nothing to run' "$cluster" --run
  refused 'what is --frobnicate?' "$cluster" --frobnicate -- true
  refused 'what is true?' "$cluster" true
  refused '--nodes needs a value' "$cluster" --nodes
  refused '--nodes 0: not a whole number of 1 to 64' "$cluster" --nodes 0 -- true
  refused '--packages 2x: not a whole number' "$cluster" --packages 2x -- true
  refused '--ranks -1: not a whole number' "$cluster" --ranks -1 -- true
  refused '--ranks 08: not a whole number' "$cluster" --ranks 08 -- true
  refused '--nodes 9 x --packages 8: more than 64 hosts' "$cluster" --nodes 9 --packages 8 -- true
  refused '--mtu 65001: not a whole number of 576 to 65000' "$cluster" --mtu 65001 -- true
  refused '--nic-rate 500: not a rate' "$cluster" --nic-rate 500 -- true
  refused '--nic-rate fast: not a rate' "$cluster" --nic-rate fast -- true
  refused '--nic-rate 9mbit: not a rate of 10mbit to 100gbit' "$cluster" --nic-rate 9mbit -- true
  refused '--node-rate 100.001gbit: not a rate of 10mbit to 100gbit' "$cluster" --node-rate 100.001gbit -- true
  refused '--up and --down at once' "$cluster" --up --down
  refused '--up runs no program' "$cluster" --up -- true
  refused '--nodes is for making a cluster' "$cluster" --run --nodes 2 -- true
  refused 'STRATA_CLUSTER=../x: not a short name' env STRATA_CLUSTER=../x "$cluster" --up
  refused 'there is no cluster stratatest' "$cluster" --run -- true
  refused 'needs nompirun' env MPIRUN=nompirun "$cluster" -- true
  refused 'neither of Open MPI nor of MPICH' env MPIRUN=true "$cluster" -- true
  said 0 '--node-rate RATE' "$cluster" --help

  # Another user, who may not see this tree; and a PATH on which one tool is missing, or tc does not do what it is asked to.
  cp "$cluster" "$folder"
  chmod 755 "$folder"
  refused 'takes root' setpriv --reuid=65534 --regid=65534 --clear-groups "$folder/cluster.sh" -- true
  for name in ip tc unshare mpirun; do
    mkdir "$folder/bin"
    find /bin /sbin /usr/bin /usr/sbin "$(dirname "$(command -v mpirun)")" -maxdepth 1 -exec ln -sf -t "$folder/bin" {} +
    rm "$folder/bin/$name"
    refused "needs $name" env PATH="$folder/bin" "$cluster" -- true
    rm -r "${folder:?}/bin"
  done
  mkdir "$folder/bin"
  stand_in() { printf '#!/bin/bash\n%s\n' "$1" > "$folder/bin/tc"; chmod +x "$folder/bin/tc"; }
  stand_in 'echo "Error: Specified qdisc kind is unknown." >&2; exit 2'
  refused 'does not give namespaces, veth, bridge and htb: Error: Specified qdisc kind is unknown.' \
    env PATH="$folder/bin:$PATH" "$cluster" -- true
  nothing_left 'a refusal'
  stand_in '[[ $* != *stratatest-p1* ]] || { echo "no links for you" >&2; exit 1; }; PATH=${PATH#*:} exec tc "$@"'
  said 3 'no links for you' env PATH="$folder/bin:$PATH" "$cluster" -- true
  nothing_left 'half a cluster'
}

runs() {
  local host rate each words
  run --up --nodes 2 --packages 2 --ranks 2 --node-rate 2gbit --nic-rate 500mbit

  # Each rank leaves a file in shared memory and sees its neighbour's, and no other's; the first hears what comes in.
  cat > "$folder/rank.sh" <<'END'
rank=${OMPI_COMM_WORLD_RANK-$PMI_RANK}
touch "/dev/shm/rank-$rank"
for _ in $(seq 300); do [[ $(ls /dev/shm/rank-* | wc -l) -lt 2 ]] || break; sleep 0.1; done
echo "rank $rank of ${OMPI_COMM_WORLD_SIZE-$PMI_SIZE} on $(< /proc/sys/kernel/hostname) with" $(ls /dev/shm | grep rank-) "in $PWD: $*:$(cat)"
sleep 1  # before the last of a package ends, and its memory with it
END
  words=('two  words' '$HOME' "it's \"quoted\"")
  (cd "$folder" && echo hello | run --run -- bash "$folder/rank.sh" "${words[@]}" > said) || fail "exit code $?"
  for each in 0 1 2 3 4 5 6 7; do
    echo "rank $each of 8 on stratatest-p$((each / 2)) with rank-$((each / 2 * 2)) rank-$((each / 2 * 2 + 1)) in $folder: ${words[*]}:$(
      [[ $each -gt 0 ]] || echo hello)"
  done > "$folder/wanted"
  sort "$folder/said" | diff "$folder/wanted" - || fail "ranks are elsewhere, or see something else"

  # Both links of every host, at both ends.
  for each in 0 1 2 3; do
    for host in "stratatest-p$each eth0" "stratatest-switch s$each"; do
      rate=$(tc -netns "${host% *}" class show dev "${host#* }" | sed -n 's/^class htb \(1:[12]\) .* rate \([^ ]*\) .*/\1 \2/p' | sort | paste -sd' ')
      [[ $rate == '1:1 2Gbit 1:2 500Mbit' ]] || fail "rates of $host: $rate"
    done
  done
  # Strata's own collectives, over both links: each carries some.
  run --run -- "$strata" bench comm --begin 262144 --end 262144 --rounds 1 --json > "$folder/said" 2>&1 || fail "strata bench comm"
  grep --quiet '"ranks": *8' "$folder/said" || fail "not eight ranks"
  for each in 0 1 2 3; do
    for host in "stratatest-p$each eth0" "stratatest-switch s$each"; do
      rate=$(tc -statistics -netns "${host% *}" class show dev "${host#* }" | awk '/^ Sent/ && $2 > 200000 { ++busy } /^ Sent.*dropped [^0]/ { busy = -9 } END { print busy }')
      [[ $rate == 2 ]] || fail "not both links of $host carried 200 kB without loss"
    done
  done

  # One at a time, and never two.
  "$cluster" --run -- bash -c "touch $folder/on; until [[ -e $folder/off ]]; do sleep 0.1; done" 8>&- &
  script=$!
  for _ in $(seq 300); do [[ ! -e $folder/on ]] || break; sleep 0.1; done
  refused 'another cluster.sh is at work' "$cluster" --run -- true
  refused 'another cluster.sh is at work' "$cluster" --down
  touch "$folder/off"  # a rank that comes late finds it as well
  wait "$script" || fail "the first job did not end well"
  script=''
  refused 'there already: cluster.sh --down removes it' "$cluster" --up
  refused 'there already: cluster.sh --down removes it' "$cluster" -- true
  run --down
  nothing_left --down
  refused 'there is no cluster stratatest' "$cluster" --run -- true
  run --down
}

# start COMMAND...: a job of four ranks in the background, until all of them are there.
start() {
  # Bash lets what it starts in the background ignore Ctrl-C.
  setpriv --pdeathsig KILL env --default-signal=INT "$cluster" --packages 1 --ranks 2 -- "$@" > "$folder/said" 2>&1 8>&- < /dev/null &
  script=$!
  for _ in $(seq 300); do
    mapfile -t pids < <(pgrep -f "^sleep 8$$")
    [[ ${#pids[@]} -lt 4 ]] || return 0
    kill -0 "$script" 2> /dev/null || fail "the job ended by itself"
    sleep 0.1
  done
  fail "there are ${#pids[@]} ranks, not 4"
}
# ended CODE HOW
ended() {
  local code=0
  wait "$script" || code=$?
  script=''
  [[ $1 == failed ]] && { [[ $code -ne 0 ]] || fail "exit code 0 after $2"; }
  [[ $1 == failed || $code -eq $1 ]] || fail "exit code $code, not $1, after $2"
  [[ -z $(pgrep -f "^sleep 8$$") ]] || fail "ranks are left after $2"
}

ends() {
  local signal
  said 0 '' run --packages 1 -- true
  nothing_left 'a job that went well'
  said 5 '' run --packages 1 -- bash -c 'exit 5'
  nothing_left 'a job that failed'
  for signal in 2:INT 15:TERM; do
    start sleep "8$$"
    kill "-${signal#*:}" "$script"
    ended $((128 + ${signal%:*})) "SIG${signal#*:}"
    nothing_left "SIG${signal#*:}"
  done
  start sleep "8$$"
  pkill -KILL -f '^[^ ]*mpi[^ ]* .*/run/stratatest-cluster/hostfile' || fail "there is no mpirun to kill"
  ended failed 'a kill of mpirun'
  nothing_left 'a kill of mpirun'
  start sleep "8$$"
  kill -KILL "${pids[3]}"
  ended failed 'a kill of a rank'
  nothing_left 'a kill of a rank'

  # Only this leaves something, and no process even then.
  start sleep "8$$"
  kill -KILL "$script"
  ended 137 'SIGKILL' 2> /dev/null
  [[ -n $(ip netns list | grep stratatest) ]] || fail "SIGKILL left nothing to refuse"
  refused 'there already: cluster.sh --down removes it' "$cluster" -- true
  refused 'there already: cluster.sh --down removes it' "$cluster" --up
  run --clean
  nothing_left --clean
}

case $part in
  refuses | runs | ends) "$part" ;;
  *) echo "run.sh: no part $part" >&2; exit 2 ;;
esac
echo passed
