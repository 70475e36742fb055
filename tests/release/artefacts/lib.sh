# shellcheck shell=sh
# Read by the scripts of this folder, one for each kind of artefact. Each has three functions:
#   build    builds the artefacts into the folder $out
#   try      installs them in the empty folder where it runs, and runs a first program on the server of REDIS_URL
#   publish  publishes them, or, without credentials or outside a tagged commit, only shows what would happen
# `./dev release` calls them: KIND build|try|publish, with the folder of all artefacts in LUAGATE_ARTEFACTS.
set -eu

root=$(CDPATH='' cd "$(dirname "$0")/../../.." && pwd)
out=$LUAGATE_ARTEFACTS/$(basename "$0")
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml")

say() { printf 'dev: %s\n' "$*"; }
fail() { printf 'dev: %s\n' "$*" >&2 && exit 1; }
run() { say "$*" && "$@"; }
has() { command -v "$1" >/dev/null 2>&1; }
need() { has "$1" || fail "$1 is missing: install $1, then try again"; }

# The files and the commands of the section "First program" of a README. A file follows a line with its name.
# write README NAME ...: writes these files.
write() {
  readme=$1
  shift
  for file; do
    mkdir -p "$(dirname "$file")"
    awk -v name="\`$file\`:" '/^```/ { if (inside) exit; inside = before == name; next } inside { print } { before = $0 }' \
      "$readme" >"$file"
  done
}

# commands README NUMBER: the commands of this block of the shell.
commands() {
  awk -v number="$2" '/^```sh$/ && ++blocks == number { inside = 1; next } /^```/ { inside = 0 } inside { print }' "$1"
}

# first_program COMMAND ...: runs a first program. It prints the permit that it was granted.
first_program() {
  say "$*"
  printed=$("$@") || fail "it failed: $printed"
  printf '%s\n' "$printed"
  case $printed in
    *'trading as '*) ;;
    *) fail "the program did not print 'trading as'" ;;
  esac
}

# acquires COMMAND ...: acquires a permit with this command, such as luagate, and releases it.
acquires() {
  run "$@" --version
  permit=$("$@" acquire --no-keeper --lease 30s -n 5 market:account:17) || fail 'acquire failed'
  # shellcheck disable=SC2086 # its name, id and fence
  run "$@" release $permit
}

# is_live VARIABLE: whether to publish. VARIABLE contains the credentials.
is_live() {
  if eval "[ -z \"\${$1:-}\" ]"; then
    say "dry run: $1 is not set"
  elif [ "$(git -C "$root" tag --points-at HEAD --list "v$version")" != "v$version" ]; then
    say "dry run: this commit does not have the tag v$version"
  else
    return 0
  fi
  return 1
}

# main FUNCTION
main() {
  case ${1:-} in
    build) rm -rf "$out" && mkdir -p "$out" && cd "$root" ;;
    publish) cd "$root" ;;
    try) ;;
    *) fail "usage: $0 build|try|publish" ;;
  esac
  "$1"
}
