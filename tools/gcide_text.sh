#!/bin/sh
# gcide_text.sh IN OUT: the Collaborative International Dictionary of English (Debian: dict-gcide,
# /usr/share/dictd/gcide.dict.dz) as plain English prose. One entry is one document; documents end with a form feed.
# Needs only what every Debian has: sh, gzip, perl-base.
set -eu
if [ $# -ne 2 ]; then
  echo "usage: gcide_text.sh IN OUT   (IN: gcide.dict.dz of the package dict-gcide)" >&2
  exit 2
fi
if [ ! -r "$1" ]; then
  echo "gcide_text.sh: cannot read $1: install the package dict-gcide" >&2
  exit 2
fi
here=$(dirname "$0")
partial=$2.partial-$$
trap 'rm -f "$partial" "$partial.raw"' EXIT
trap 'exit 4' INT TERM
# Not a pipe: sh would not see gzip fail.
gzip -dc <"$1" >"$partial.raw" || { echo "gcide_text.sh: $1 is not a whole .dict.dz file" >&2; exit 2; }
perl "$here/gcide_text.pl" <"$partial.raw" >"$partial"
mv "$partial" "$2"
