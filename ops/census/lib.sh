# shellcheck shell=sh
# Sourced by the censuses beside it: POSIX sh. `me` is the script's name, `self` its path.
# shellcheck disable=SC2154 # me and self are theirs
set -u
LC_ALL=C
export LC_ALL

say() { printf '%s: %s\n' "$me" "$1" >&2; }

# fail CODE MESSAGE: 1 it could not be done, 2 asked wrongly. Nothing has been printed then.
fail() {
  say "$2"
  exit "$1"
}

usage_error() {
  say "$1"
  echo "see: $self --help" >&2
  exit 2
}

# needs_value ARGUMENTS_LEFT OPTION
needs_value() { [ "$1" -gt 1 ] || usage_error "$2 needs a value"; }

is_limit() {
  case $1 in '' | 0* | *[!0-9]* | ?????*) return 1 ;; esac
}

is_repository() { # [HOST/]OWNER/REPO
  case $1 in *[!A-Za-z0-9._/-]* | -* | /* | */ | *//* | */*/*/*) return 1 ;; */*) ;; *) return 1 ;; esac
}

# Runs gh with its words on stderr and prints what it said: all of it, or nothing. Never asks, pages or colours.
ask_gh() { # ARGUMENTS…
  command -v gh >/dev/null 2>&1 || fail 1 'there is no gh on PATH; install the GitHub CLI (https://cli.github.com)'
  found=$(GH_PROMPT_DISABLED=1 GH_NO_UPDATE_NOTIFIER=1 GH_PAGER=cat NO_COLOR=1 gh "$@" </dev/null)
  status=$?
  case $status in
    0) [ -z "$found" ] || printf '%s\n' "$found" ;;
    4) fail 1 'gh is not logged in; run "gh auth login", or give it GH_TOKEN' ;;
    *) fail 1 "gh $1 $2 failed with status $status" ;;
  esac
}
