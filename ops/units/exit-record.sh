#!/bin/sh
# exit-record.sh EXITS_DIR: leaves EXITS_DIR/$OUTLIVE_NONCE.json, how this unit ended.
#
# Run by the user manager as ExecStopPost of every attempt (systemd.service(5)), also
# while the daemon is down. The shape is exitRecordSchema in src/domain/evidence.ts;
# what cannot be known is null. The daemon keeps a copy beside the drop-in that names it
# (src/systemd/drop-in.ts). Units that an older outlive started run the newest copy, so
# the argument and the shape stay compatible.
#
# It always exits 0, and nothing in it waits without a limit: a failing ExecStopPost could
# turn the Result of a good run into exit-code, a hanging one turns it into timeout (both
# measured on 252). Complaints go to stderr, that is, to the unit's journal.
umask 077
set -f
LC_ALL=C
PATH=/usr/local/bin:/usr/bin:/bin:/run/current-system/sw/bin
export LC_ALL PATH

complain() {
  echo "exit-record: $1" >&2
  exit 0
}

# A JSON string, or null for anything empty or with a character no value of ours has.
text() {
  case $1 in
    '' | *[!A-Za-z0-9_.:+-]*) echo null ;;
    *) echo "\"$1\"" ;;
  esac
}

# A JSON number from /proc/uptime, or null.
decimal() {
  case $1 in
    '' | .* | *. | *.*.* | *[!0-9.]* | 0[0-9]*) echo null ;;
    *) echo "$1" ;;
  esac
}

# The user manager as a process. Field 2 of its stat is its name, which may hold spaces
# and parentheses, so fields are counted after the last ") ": state is the first of them,
# the start time (field 22, proc(5)) the twentieth.
manager() {
  case $1 in '' | *[!0-9]*) echo null; return ;; esac
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || stat=
  # shellcheck disable=SC2086 # split on purpose; set -f is on
  set -- "$1" ${stat##*) }
  case ${21-} in
    '' | *[!0-9]*) echo null ;;
    *) echo "{\"pid\":$1,\"startTicks\":${21}}" ;;
  esac
}

# `stopping` tells a logout or shutdown from a person's stop. Its exit status only
# repeats the word, and "unknown" is what it says when nobody answered.
manager_state() {
  # Without a user manager the caller has asked somebody else (direct-attempt.sh).
  state=${OUTLIVE_MANAGER_STATE-$(timeout -s KILL 3 systemctl --user is-system-running 2>/dev/null)}
  [ "$state" = unknown ] && state=
  text "$state"
}

record() {
  boot=
  uptime=
  read -r boot </proc/sys/kernel/random/boot_id
  read -r uptime _ </proc/uptime
  printf '{"v":1,"nonce":"%s","invocationId":%s,"serviceResult":%s,"exitCode":%s,"exitStatus":%s,"bootId":%s,"uptimeSeconds":%s,"ts":%s,"manager":%s,"managerState":%s}\n' \
    "$nonce" "$(text "${INVOCATION_ID-}")" "$(text "${SERVICE_RESULT-}")" "$(text "${EXIT_CODE-}")" \
    "$(text "${EXIT_STATUS-}")" "$(text "$boot")" "$(decimal "$uptime")" \
    "$(text "$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ)")" "$(manager "${MANAGERPID-}")" "$(manager_state)"
}

exits=${1-}
nonce=${OUTLIVE_NONCE-}
case $nonce in
  '' | *[!0-9a-f]*) complain "OUTLIVE_NONCE is not 32 hex digits: no record" ;;
esac
[ ${#nonce} -eq 32 ] || complain "OUTLIVE_NONCE is not 32 hex digits: no record"
[ -d "$exits" ] || complain "no directory '$exits': no record"

final=$exits/$nonce.json
[ -e "$final" ] && complain "$final exists: the first record stays"
temporary=$exits/.$nonce.$$.tmp
trap 'rm -f "$temporary"' EXIT

record >"$temporary" || complain "cannot write $temporary: no record"
# Bounded, and only an attempt: a record that may be lost with the power beats none.
timeout -s KILL 5 sync "$temporary" || echo "exit-record: cannot sync $temporary" >&2
# -n is renameat2(RENAME_NOREPLACE) in coreutils 9: of two writers the first wins.
mv -nT "$temporary" "$final" || complain "cannot make $final: no record"
timeout -s KILL 5 sync "$exits" || echo "exit-record: cannot sync $exits" >&2
exit 0
