# shellcheck shell=sh
# Sourced by install, uninstall and halt: POSIX sh, systemctl, and no Node. `me` is the script's name.
# shellcheck disable=SC2154,SC2034 # me, dry and units are theirs and ours
set -u
set -f # unit names and paths are never patterns
LC_ALL=C
export LC_ALL

say() { printf '%s: %s\n' "$me" "$1" >&2; }

# fail CODE MESSAGE: 1 it could not be done, 2 asked wrongly, 69 (EX_UNAVAILABLE, sysexits.h) something is missing here.
fail() {
  say "$2"
  exit "$1"
}

usage_error() {
  say "$1"
  echo "see: $0 --help" >&2
  exit 2
}

# The same grammar as src/domain/names.ts.
is_workspace() {
  case $1 in '' | *[!a-z0-9]*) return 1 ;; esac
  [ ${#1} -le 32 ]
}

is_handle() {
  case $1 in '' | -* | *- | *[!a-z0-9-]*) return 1 ;; esac
  [ ${#1} -le 64 ]
}

# A counter: no leading zero, at most 15 digits.
is_counter() {
  case $1 in '' | 0* | *[!0-9]*) return 1 ;; esac
  [ ${#1} -le 15 ]
}

# systemctl finds the manager by this directory; su, sudo and cron do not set it.
runtime_directory() {
  if [ -z "${XDG_RUNTIME_DIR-}" ] && [ -d "/run/user/$(id -u)" ]; then
    XDG_RUNTIME_DIR=/run/user/$(id -u)
    export XDG_RUNTIME_DIR
  fi
  runtime=${XDG_RUNTIME_DIR-}
}

is_active() { manager is-active -q "$1" 2>/dev/null; }

has_systemctl() { command -v systemctl >/dev/null 2>&1; }

# A manager that hangs is no manager to wait for.
manager() { timeout 200 systemctl --user "$@"; }

manager_answers() { timeout 10 systemctl --user show -P Version >/dev/null 2>&1; }

# Done, or only shown with --dry-run.
act() { # COMMAND…
  if [ "$dry" = no ]; then
    "$@"
  elif [ "$1" = manager ]; then
    shift
    echo "+ systemctl --user $*"
  else
    echo "+ $*"
  fi
}

service_of() { echo "outlived@$1.service"; }
transient_of() { echo "outlived-$1.service"; }
sockets_of() { echo "outlived-http@$1.socket outlived-api@$1.socket"; }

state_directory() { echo "${XDG_STATE_HOME:-$HOME/.local/state}/outlive/$1"; }

# Attempts of a workspace in one of the STATES (comma-separated), one unit name a line. systemd's pattern also matches names that
# no attempt has; those are left out.
attempts_of() { # WORKSPACE STATES
  units_listed=$(manager list-units --type=service --state="$2" --plain --no-legend --full "outlive-$1-*.service") ||
    fail 1 'the systemd user manager does not list its units'
  echo "$units_listed" | while read -r unit _; do
    ! is_attempt "$unit" || echo "$unit"
  done
}

# True for a name that src/domain/names.ts would have made.
is_attempt() {
  name=${1%.service}
  [ "$name.service" = "$1" ] || return 1
  name=${name#outlive-}
  [ "outlive-$name.service" = "$1" ] || return 1
  is_counter "${name##*-}" || return 1
  name=${name%-*}
  case $name in *-*) ;; *) return 1 ;; esac
  is_workspace "${name%%-*}" && is_handle "${name#*-}"
}

# --- what install writes and uninstall removes -----------------------------------------------------------------------------------

mark='Rendered by ops/scripts/install'

# Where the user manager looks for a person's units: its own XDG_CONFIG_HOME counts, not this shell's.
find_units() {
  units=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user
  for path in $(systemctl --user show -P UnitPath 2>/dev/null); do
    case $path in
      "${runtime:-/run}"/* | /run/*) ;;
      */systemd/user.control) units=${path%.control} && return ;;
    esac
  done
}

# Ours, or not there at all: a file of that name which a person wrote is left alone.
is_ours() { [ ! -e "$1" ] || grep -qF "$mark" "$1"; }

shared_files='outlived@.service outlived-api@.socket outlived-http@.socket outlive.slice outlive-driver@.service outlive-driver@.timer'

own_files() { # WORKSPACE
  echo "outlive-attempts-$1.slice outlived@$1.service.d/50-outlive.conf outlived-http@$1.socket.d/50-outlive.conf"
}

# Every workspace has its slice file for as long as it is installed.
installed_workspaces() {
  [ -d "$units" ] || return 0
  find "$units" -maxdepth 1 -name 'outlive-attempts-*.slice' | sed -n 's/.*\/outlive-attempts-\([a-z0-9]\{1,32\}\)\.slice$/\1/p'
}
