#!/bin/bash
# Every package that tools/install.sh installs has a row in docs/dependencies.md, and no row is left of one that it does not.
set -euo pipefail
cd "$(dirname "$0")/../.."
if difference=$(diff <(tools/install.sh --list | sort -u) <(sed -n 's/^| `\([^`]*\)`.*/\1/p' docs/dependencies.md | sort -u)); then
  exit 0
fi
echo "tools/install.sh (<) and docs/dependencies.md (>) name different packages:"
echo "$difference"
exit 1
