#!/bin/bash
# bare_debian.sh DIR [--working-tree] [--keep] [COMMAND]: does Strata build and run where nothing is installed?
#
# For maintainers. Makes a minimal Debian 12 in the new folder DIR (debootstrap --variant=minbase), puts a clean clone of
# this repository's HEAD into it as /root/strata (with --working-tree: the files as they lie here, new ones included), runs
# COMMAND there (default: ./run --quick && ./test), and removes DIR unless --keep is given. Needs root, debootstrap, git and
# about 3 GB; packages come from wherever this machine's own apt gets them. The root has its own mounts and processes,
# which end with this script.
# Exit code: COMMAND's; 2 bad argument, 3 the root could not be made.
set -euo pipefail

usage() { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
root='' tree='' keep='' command='./run --quick && ./test'
while [[ $# -gt 0 ]]; do
  case $1 in
    --working-tree) tree=1 ;;
    --keep) keep=1 ;;
    -*) usage ;;
    *) if [[ -z $root ]]; then root=$1; else command=$1; fi ;;
  esac
  shift
done
[[ -n $root ]] || usage
fail() { echo "bare_debian.sh: $1" >&2; exit "${2-3}"; }
[[ $EUID -eq 0 ]] || fail "a Debian root can only be made by root" 2
[[ ! -e $root ]] || fail "$root exists already; name a folder that does not" 2
for tool in debootstrap git unshare; do
  command -v $tool > /dev/null || fail "needs $tool: apt-get install $([[ $tool == unshare ]] && echo util-linux || echo $tool)"
done
repository=$(cd "$(dirname "$0")/.." && pwd)

mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' | sed -n '/^bookworm /{s///p;q}')
[[ -n $mirror ]] || fail "this machine's apt knows no source of Debian 12 (bookworm)"
extra=()
[[ $mirror == https:* ]] && extra=(--include=ca-certificates)

# Mounts are made in a namespace of their own (below), so there is never one under $root here.
[[ -n $keep ]] || trap 'rm -rf --one-file-system "$root"' EXIT
trap 'rm -f "$root.log"; exit 4' INT TERM
mkdir -p "$root"
root=$(cd "$root" && pwd)

echo "== a bare Debian 12 in $root"
debootstrap --variant=minbase "${extra[@]}" bookworm "$root" "$mirror" > "$root.log" 2>&1 ||
  { tail -n 20 "$root.log" >&2; fail "debootstrap failed; $root.log"; }
rm -f "$root.log"

# The root's apt reaches what this machine's reaches, in the same way; nothing else of this machine goes along.
rm -rf "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d
cp -a /etc/apt/sources.list* "$root/etc/apt/" 2> /dev/null || true
mkdir -p "$root/usr/share/keyrings" "$root/etc/apt/keyrings"
cp -an /usr/share/keyrings/. "$root/usr/share/keyrings/"
cp -an /etc/apt/keyrings/. "$root/etc/apt/keyrings/" 2> /dev/null || true
apt-config dump Acquire > "$root/etc/apt/apt.conf.d/99as-outside"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"

if [[ -n $tree ]]; then
  mkdir "$root/root/strata"
  git -C "$repository" ls-files -z --cached --others --exclude-standard |
    tar --create --directory="$repository" --null --ignore-failed-read --files-from=- | tar --extract --directory="$root/root/strata"
else
  git clone --quiet --no-hardlinks "$repository" "$root/root/strata"
fi

echo "== in it: $command"
start=$SECONDS code=0
# In the background, so that a signal is heard at once; unshare itself is deaf to all but KILL, which ends everything inside.
unshare --mount --pid --fork --kill-child bash -c '
  set -e
  mount -t proc proc "$1/proc"
  mount --rbind /sys "$1/sys"
  mount --rbind /dev "$1/dev"
  exec chroot "$1" /usr/bin/env -i HOME=/root TERM="${TERM-dumb}" LANG=C.UTF-8 ${http_proxy:+http_proxy="$http_proxy"} \
    ${https_proxy:+https_proxy="$https_proxy"} PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    bash -c "cd /root/strata && $2"' bare "$root" "$command" < /dev/null &
inside=$!
trap 'kill -KILL $inside; wait $inside || true; exit 4' INT TERM
wait $inside || code=$?
echo "== exit code $code after $((SECONDS - start)) s"
exit $code
