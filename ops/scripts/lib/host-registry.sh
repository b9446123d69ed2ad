# Sourced by ops/scripts/host: which hosts exist, who may change them, whether they run.
# shellcheck shell=bash disable=SC2034,SC2154
#
# $registry/NAME/            root only, the lock of NAME is a flock on it
#   home/ journal/ machine-id     what a crash and a reboot leave alone
#   repo                     the checkout it was booted from
#   init keeper              pid and start time of its PID 1 and of the process that waits for it, seen from here
#   ready                    its user manager has answered since the last boot
#   owner                    `run` only: pid and start time of the script; without it the host is an orphan
#   mnt/ fifo boot.log       boot's own

registry=/run/outlive-hosts
cgroot=/sys/fs/cgroup
[ ! -d $cgroot/unified ] || cgroot=$cgroot/unified # a hybrid machine
lock='' registry_lock=''

use_name() { # NAME
  name=$1
  dir=$registry/$name
  cgroup=$cgroot/outlive-host-$name
}

# Runs CMD while nobody else adds or removes hosts. The directory is its own lock, so the last one out can remove it, too.
in_registry() { # CMD…
  local code
  leave_registry # the signal that made us clean up may have come in here
  while [ -z "$registry_lock" ]; do
    mkdir -m 700 "$registry" 2>/dev/null || [ -d "$registry" ] || return 1
    { exec {registry_lock}<"$registry"; } 2>/dev/null || continue
    flock "$registry_lock"
    [ "$registry" -ef "/proc/self/fd/$registry_lock" ] || leave_registry
  done
  "$@"
  code=$?
  leave_registry
  return "$code"
}

leave_registry() {
  [ -z "$registry_lock" ] || exec {registry_lock}<&-
  registry_lock=''
}

# Makes the entry if need be and locks it; `down` may remove it in between.
register() {
  until lock_name; do
    in_registry make_entry || fail 1 "cannot make $dir"
  done
}

make_entry() {
  delegate_controllers
  mkdir -m 700 "$dir" 2>/dev/null || [ -d "$dir" ]
}

# Its mounts lie in a mount namespace that is gone; if one ever leaked, rm must stop at it. A large home goes before others have to
# wait for us.
forget() {
  rm -rf --one-file-system "${dir:?}"/*
  in_registry remove_entry rm -rf --one-file-system "$dir"
}

forget_if_empty() {
  in_registry remove_entry rmdir "$dir" 2>/dev/null
}

remove_entry() { # CMD…
  "$@"
  compgen -G "$registry/*" >/dev/null && return 0 # in a trap a bare return means the status before the trap
  withdraw_controllers
  rmdir "$registry" 2>/dev/null
  return 0
}

# The machine's root group may not hand out controllers yet. What was switched on for us is switched off by the last one out.
delegate_controllers() {
  local controller
  for controller in cpu io memory pids; do
    grep -qw "$controller" "$cgroot/cgroup.controllers" || continue
    grep -qw "$controller" "$cgroot/cgroup.subtree_control" && continue
    { echo "+$controller" >"$cgroot/cgroup.subtree_control"; } 2>/dev/null && echo "$controller" >>"$registry/.controllers"
  done
  return 0
}

withdraw_controllers() {
  local controller
  [ -e "$registry/.controllers" ] || return 0
  while read -r controller; do
    { echo "-$controller" >"$cgroot/cgroup.subtree_control"; } 2>/dev/null
  done <"$registry/.controllers"
  rm -f "$registry/.controllers"
}

# Fails if the entry is gone. Interruptible, because a boot by somebody else may take its time.
lock_name() { # [SECONDS]
  { exec {lock}<"$dir"; } 2>/dev/null || return 1
  flock --wait "${1:-120}" "$lock" &
  wait $! || fail 1 "$name is being changed by another process"
  [ "$dir" -ef "/proc/self/fd/$lock" ] && return
  unlock_name
  return 1
}

unlock_name() {
  exec {lock}<&-
  lock=''
}

lock_existing() {
  lock_name || fail 68 "there is no host $name. To start it: $self up $name"
}

# A pid alone is no identity: it may be somebody else's by now.
identity() { # PID
  local rest
  rest=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  # Fields after the command's name, which may hold spaces; the start time is field 22 of proc(5).
  read -r -a rest <<<"${rest##*) }"
  [ "${rest[0]}" != Z ] && echo "$1 ${rest[19]}"
}

live_pid() { # FILE: the pid in it, if that process still lives
  local pid start
  read -r pid start 2>/dev/null <"$1" || return 1
  [ "$(identity "$pid")" = "$pid $start" ] && echo "$pid"
}

state() {
  if ! live_pid "$dir/init" >/dev/null; then
    echo off
  elif [ -e "$dir/ready" ]; then
    echo up
  else
    echo booting
  fi
}

state_is() { # STATE
  [ "$(state)" = "$1" ]
}

# A `run` whose working half was SIGKILLed could not clean up; its host died with it, the next `run` removes the rest.
sweep_orphans() {
  local owner
  for owner in "$registry"/run-*/owner; do
    [ -e "$owner" ] || continue
    live_pid "$owner" >/dev/null || (use_name "$(basename "$(dirname "$owner")")" && lock_name 0 && throw_away) >/dev/null
  done
}
