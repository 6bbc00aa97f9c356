#!/bin/bash
# Does tests/check_includes.sh catch what it is there for? Each fault is put into a small made-up tree, and one into a copy
# of the real one.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# A tree with nothing wrong: core < ops, files < device < model.
fresh() {
  rm -rf "$work/tree"
  mkdir -p "$work"/tree/src/{core,ops,files,device/cpu,model}
  cd "$work/tree/src"
  echo 'strata_part(core LIBRARIES fmt::fmt SOURCES a.cpp)' > core/CMakeLists.txt
  echo '#include <vector>' > core/error.h
  echo 'strata_part(ops USES core)' > ops/CMakeLists.txt
  printf '#pragma once\n#include "core/error.h"\n' > ops/op.h
  echo 'strata_part(files USES core)  # not: USES model' > files/CMakeLists.txt
  printf '#  include "core/error.h"\n#include <zlib/zlib.h>\n' > files/file.h
  # Two ways to build a part, on several lines; core comes with ops.
  printf 'if(X)\n  strata_part(device USES ops SOURCES a.cpp)\nelse()\n  strata_part(device USES\n    ops LIBRARIES hwy::hwy\n' > device/CMakeLists.txt
  printf '    SOURCES b.cpp)\nendif()\n' >> device/CMakeLists.txt
  printf '#include "device/cpu/cpu.h"\n#include "ops/op.h"\n#include "core/error.h"\n' > device/cpu/cpu.cpp
  touch device/cpu/cpu.h
  echo 'strata_part(model USES ${everything})' > model/CMakeLists.txt
  printf '#include "files/file.h"\n#include "device/cpu/cpu.h"\n// #include "cli/verb.h"\n' > model/model.cpp
}

# expect CODE TEXT: the check exits with CODE and says TEXT.
expect() {
  local code=0
  "$root/tests/check_includes.sh" "${tree-$work/tree}" > "$work/said" 2>&1 || code=$?
  if [[ $code -ne $1 ]] || [[ "$(< "$work/said")" != *"$2"* ]]; then
    echo "FAILED: ${FUNCNAME[1]} line ${BASH_LINENO[0]}: wanted exit code $1 and '$2', got $code and:"
    cat "$work/said"
    failures=$((failures + 1))
  fi
}

fresh
expect 0 ''
fresh; echo '#include "model/model.h"' >> ops/op.h
expect 1 'src/ops/op.h:3: ops includes model/model.h, but model lies above ops'
fresh; echo '#include "files/file.h"' >> ops/op.h
expect 1 'src/ops/op.h:3: ops includes files/file.h, but they are siblings'
fresh; printf '  #  include   "model/model.h"  // a comment\n' >> device/cpu/cpu.h
expect 1 'src/device/cpu/cpu.h:1: device includes model/model.h'
fresh; echo '#include <model/model.cpp>' >> core/error.h
expect 1 'src/core/error.h:2: core includes model/model.cpp'
fresh; echo '#include "error.h"' >> core/error.h
expect 1 'src/core/error.h:2: "error.h" is no path below src/'
fresh; echo '#include "../model/model.h"' >> core/error.h
expect 1 'src/core/error.h:2: "../model/model.h" is no path below src/'
fresh; mkdir helpers
expect 1 'src/helpers/: a part that the order'
fresh; echo 'strata_part(files USES core model)' > files/CMakeLists.txt
expect 1 'src/files/CMakeLists.txt: files USES model, but model lies above files'
fresh; echo 'strata_part(files USES core ops)' > files/CMakeLists.txt
expect 1 'src/files/CMakeLists.txt: files USES ops, but they are siblings'
fresh; echo 'strata_part(files USES core helpers)' > files/CMakeLists.txt
expect 1 'src/files/CMakeLists.txt: USES helpers, which is no part'
fresh; echo 'strata_part(files SOURCES core)' > files/CMakeLists.txt
expect 1 'src/files/CMakeLists.txt: USES lacks core, which src/files/file.h:1 includes'
fresh; sed -i 's/else()/strata_part(device_extra USES files)\nelse()/' device/CMakeLists.txt
expect 1 'src/device/CMakeLists.txt: USES files, but no file of device includes it'

# The real tree, with one line more.
rm -rf "$work/tree"
mkdir "$work/tree"
cp -r "$root/src" "$work/tree/src"
echo '#include "cli/verb.h"' >> "$work/tree/src/core/error.h"
expect 1 'core includes cli/verb.h, but cli lies above core'
tree=$work/nowhere expect 2 'no folder'

[[ $failures -eq 0 ]] || exit 1
echo "every fault was caught"
