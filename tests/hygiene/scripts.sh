#!/bin/bash
# Do all scripts parse, can they be started, and do they stop at the first error? With shellcheck, its errors too.
set -euo pipefail
cd "$(dirname "$0")/../.."
code=0
mapfile -t scripts < <(printf '%s\n' run test .ci/run; find tools tests bench -name '*.sh')
for script in "${scripts[@]}"; do
  read -r first < "$script"
  case $first in
    '#!/bin/bash') bash -n "$script" || code=1 ;;
    '#!/bin/sh') sh -n "$script" || code=1 ;;
    *) echo "$script: first line is neither #!/bin/bash nor #!/bin/sh"; code=1 ;;
  esac
  [[ -x $script ]] || { echo "$script: not executable"; code=1; }
  grep --quiet --extended-regexp '^set -eu' "$script" || { echo "$script: goes on after an error (set -euo pipefail)"; code=1; }
done
if command -v shellcheck > /dev/null; then shellcheck --severity=error "${scripts[@]}" || code=1; fi
echo "${#scripts[@]} scripts"
exit $code
