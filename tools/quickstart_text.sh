#!/bin/bash
# quickstart_text.sh: plain English text to train on; prints the path of the file. It is the dictionary of Debian's package
# dict-gcide, from the system if installed, else from the package unpacked into build/ (an installation would bring a
# dictionary server along). A second call only looks.
# Exit code: 0 there it is, 3 there is no such text to be had.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/build/quickstart
text=$work/gcide.txt
mkdir -p "$work"

dictionary=/usr/share/dictd/gcide.dict.dz
[[ -r $dictionary ]] || dictionary=$work/package/usr/share/dictd/gcide.dict.dz
if [[ ! -r $dictionary ]]; then
  fail() {
    cat >&2 <<END
strata: no English text at hand: $1
  The text is the package dict-gcide's. Install it (apt-get install dict-gcide), or give text of your own:
  ./run --text FILE...
END
    exit 3
  }
  command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || fail "there is no apt here to get the package dict-gcide with"
  download=$(mktemp -d)
  trap 'rm -rf "$download"' EXIT
  # Anyone may download; package lists can be had by root only.
  get() { (cd "$download" && apt-get download dict-gcide -o APT::Sandbox::User=root) > "$download/log" 2>&1 < /dev/null; }
  get || { [[ $EUID -eq 0 ]] && apt-get update > /dev/null 2>&1 < /dev/null && get; } ||
    { tail -n 3 "$download/log" >&2; fail "apt could not download the package dict-gcide (its last words are above)"; }
  rm -rf "$work/package"
  dpkg-deb --extract "$download"/dict-gcide_*.deb "$download/package" && mv "$download/package" "$work/package"
  [[ -r $dictionary ]] || fail "the package dict-gcide holds no dictionary where it should"
fi

made_from=$(sha256sum "$dictionary" tools/gcide_text.sh tools/gcide_text.pl)
if [[ ! -f $text || ! -f $text.made_from || $(< "$text.made_from") != "$made_from" ]]; then
  rm -f "$text.made_from"
  tools/gcide_text.sh "$dictionary" "$text" >&2
  echo "$made_from" > "$text.made_from"
fi
echo "$text"
