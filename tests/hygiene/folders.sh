#!/bin/bash
# Every part has a README.md, and src/README.md names every part.
set -euo pipefail
cd "$(dirname "$0")/../.."
code=0
for folder in src/*/; do
  part=${folder#src/} part=${part%/}
  compgen -G "$folder*.h" > /dev/null || compgen -G "$folder*.cpp" > /dev/null || continue
  [[ -s ${folder}README.md ]] || { echo "$folder has no README.md: what it is for, what it may use, where to start"; code=1; }
  grep --quiet "\*\*$part\*\*" src/README.md || { echo "src/README.md does not say what $part is"; code=1; }
done
exit $code
