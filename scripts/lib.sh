# Shared by the scripts: where things are, which tools serve, how a preset is built. Sourced, never run.
# shellcheck shell=bash disable=SC2034 # the sourcing script uses what is set here

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/shardledger
tools=$cache/tools               # a Python environment that holds what the distribution has too old, or not at all
cuda_wheels=$cache/cuda-headers  # the CUDA headers from PyPI, for machines without a toolkit
test_env=${SHARDLEDGER_TEST_ENV:-$cache/test-env}
jobs=$(nproc)

say() { printf '%s\n' "$*" >&2; }
die() {
  say "$(basename "$0"): $*"
  exit 1
}

# at_least WANTED VERSION: whether VERSION is WANTED or newer.
at_least() { printf '%s\n%s\n' "$1" "$2" | sort -V -C; }

# Sets cmake and ctest to the first CMake that is new enough; fails when there is none.
find_cmake() {
  local candidate version
  for candidate in "$(command -v cmake)" "$tools/bin/cmake"; do
    version=$("$candidate" --version 2>/dev/null | awk 'NR == 1 {print $3}') || continue
    if [ -n "$version" ] && at_least 3.25 "$version"; then
      cmake=$candidate
      ctest=$(dirname "$candidate")/ctest
      return 0
    fi
  done
  return 1
}

# Whether clang is there, with its libFuzzer.
has_libfuzzer() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const char *, unsigned long) { return 0; }' |
    clang++ -fsanitize=fuzzer -x c++ - -o /dev/null 2>/dev/null
}

# Prints CUDA_VERSION (13000, …) of the headers in these include directories, nothing when one of them is missing.
cuda_headers_version() {
  printf '#include <cuda.h>\n#include <cupti.h>\n#include <nvtx3/nvToolsExt.h>\nshardledger CUDA_VERSION\n' |
    cc -E -P -x c "${@/#/-I}" - 2>/dev/null | awk '$1 == "shardledger" {print $2}'
}

# Sets cuda_include (a CMake list) to the headers of CUDA 13 or newer; fails when there are none. One build serves
# CUDA 12 and 13 at run time, so an older toolkit's headers are passed over rather than supported separately.
find_cuda_headers() {
  local toolkit nvcc version
  nvcc=$(command -v nvcc) && nvcc=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
  for toolkit in "${CUDA_HOME:-}" "${nvcc:-}" /usr/local/cuda "$cuda_wheels/nvidia/cu13"; do
    [ -d "$toolkit/include" ] || continue
    version=$(cuda_headers_version "$toolkit/include" "$toolkit/extras/CUPTI/include")
    if [ "${version:-0}" -ge 13000 ]; then
      cuda_include="$toolkit/include;$toolkit/extras/CUPTI/include"
      return 0
    fi
  done
  return 1
}

# build_preset PRESET [TARGET…]: configures and builds; says nothing when all is well.
build_preset() {
  local preset=$1
  shift
  configure --preset "$preset" && "$cmake" --build "$root/build/$preset" -j "$jobs" --target "${@:-all}"
}

# configure ARGUMENT…: CMake's configure step, with the CUDA headers that find_cuda_headers found.
configure() {
  if ! find_cmake || ! find_cuda_headers; then
    die "run scripts/setup first"
  fi
  (cd "$root" && "$cmake" "$@" --no-warn-unused-cli -DSHARDLEDGER_CUDA_INCLUDE="$cuda_include")
}

# quietly LOG COMMAND…: runs a command with its output in LOG, and shows the end of LOG when it fails.
quietly() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 && return 0
  tail -n 100 "$log" >&2
  return 1
}
