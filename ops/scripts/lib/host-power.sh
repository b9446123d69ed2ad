# Sourced by ops/scripts/host: booting, entering, shutting down and cutting the power of the host $name.
# shellcheck shell=bash disable=SC2154

boot_seconds=60
agent_uid=1000
keeper='' # the `unshare` outside that waits for PID 1 inside, if it is our child
reader='' # the process that waits for the answer of the host's user manager

power_on() {
  local who code answer=''
  power_off || fail 70 "what is left of $name does not go away: $cgroup"
  prepare_state || fail 70 "cannot prepare $dir"
  mkdir "$cgroup" || fail 70 "cannot make $cgroup"
  launch
  # One process and nothing of the caller's open in it: `timeout` killed in the middle of its fork would leave a child behind.
  (read -r -t "$boot_seconds" answer && echo "$answer" >"$dir/answer") <>"$dir/fifo" >/dev/null 2>&1 3>&- {lock}<&- &
  reader=$!
  wait -n -p who "$keeper" "$reader"
  code=$?
  if [ "$who" = "$keeper" ]; then
    keeper=''
    [ "$code" -eq 78 ] && fail 78 "$(cat "$dir/boot.log")"
    boot_failed "PID 1 ended with $code"
  fi
  reader=''
  [ ! -e "$dir/answer" ] || answer=$(<"$dir/answer")
  case $answer in
    running | degraded) ;;
    '') boot_failed "the user manager did not answer within $boot_seconds s" ;;
    *) boot_failed "the user manager is $answer" ;;
  esac
  touch "$dir/ready"
}

prepare_state() {
  mkdir -p "$dir/mnt" "$dir/journal" && {
    [ -d "$dir/home" ] || install -d -m 700 -o "$agent_uid" -g "$agent_uid" "$dir/home"
  } && {
    [ -p "$dir/fifo" ] || mkfifo -m 600 "$dir/fifo" && chown "$agent_uid" "$dir/fifo"
  } && {
    # One machine id per host, or the journal of the last boot would be another machine's.
    [ -s "$dir/machine-id" ] || tr -d - </proc/sys/kernel/random/uuid >"$dir/machine-id"
  } && printf '%s\n' "$repo" >"$dir/repo"
}

# The keeper stays in the caller's cgroup: a process in the host's root group would forbid systemd to hand out controllers.
# A session of its own keeps a terminal's Ctrl-C away from PID 1.
launch() {
  local prefix=(setsid) namespaces=(--mount --ipc --uts --propagation private) callers='' kind
  for kind in mnt pid cgroup; do callers+="$(readlink "/proc/self/ns/$kind") "; done
  # What `run` booted dies with it, however it ends.
  [ ! -e "$dir/owner" ] || prefix+=(setpriv --pdeathsig KILL)
  [ "${OUTLIVE_HOST_BREAK-}" = pid ] || namespaces+=(--pid)
  # Nothing may be left to expand in the background: PID 1 must be the keeper's only child (stop_keeper).
  keeper="before ${!-}" # a signal may come before the line after it
  "${prefix[@]}" unshare "${namespaces[@]}" --fork --kill-child \
    "$lib/host-inside.sh" join "$dir" "$cgroup" "$repo" "$callers" </dev/null >"$dir/boot.log" 2>&1 3>&- {lock}<&- &
  keeper=$!
  identity "$keeper" >"$dir/keeper"
}

boot_failed() { # WHY
  printf 'host: %s did not boot: %s\n' "$name" "$1"
  tail -n 20 "$dir/boot.log"
  journalctl --directory="$dir/journal" --no-pager --quiet --lines=20 --output=short-monotonic
  leave 70
}

# Becomes CMD. The death of nsenter (Ctrl-C of the script, `kill`) reaches CMD as SIGTERM.
enter_as_agent() { # CMD…
  local init variable keep=()
  init=$(live_pid "$dir/init") || fail 68 "$name is not up"
  for variable in $(compgen -e); do
    case $variable in CI | OUTLIVE_*) keep+=("$variable=${!variable}") ;; esac
  done
  [ ! -t 0 ] || keep+=("TERM=${TERM-dumb}")
  join_commands || fail 68 "$name is going down"
  # bash makes background commands ignore SIGINT and SIGQUIT, CMD must not inherit that.
  exec nsenter --target "$init" --mount --pid --cgroup --ipc --uts --root="/proc/$init/root" --wd="/proc/$init/root" \
    setpriv --reuid "$agent_uid" --regid "$agent_uid" --init-groups --inh-caps=-all --pdeathsig TERM \
    env -i --default-signal=INT,QUIT --chdir=/opt/outlive "${keep[@]}" HOME=/home/agent USER=agent LOGNAME=agent SHELL=/bin/bash \
    PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 XDG_RUNTIME_DIR="/run/user/$agent_uid" \
    DBUS_SESSION_BUS_ADDRESS="unix:path=/run/user/$agent_uid/bus" "$@"
}

# Commands have a leaf group of their own, beside systemd's: its root group must hold no process (cgroups(7)).
join_commands() {
  { mkdir -p "$cgroup/outlive-commands" && echo 0 >"$cgroup/outlive-commands/cgroup.procs"; } 2>/dev/null
}

as_root() { # CMD…: inside
  local init
  init=$(live_pid "$dir/init") && join_commands &&
    exec nsenter --target "$init" --mount --pid --cgroup --ipc --uts --root="/proc/$init/root" --wd="/proc/$init/root" \
      env -i --default-signal=INT,QUIT PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# First the user's manager, so that its units see an orderly end in a manager that is `stopping`; then the host.
shut_down() {
  local init
  init=$(live_pid "$dir/init") || return
  rm -f "$dir/ready"
  (as_root timeout 150 systemctl stop "user@$agent_uid.service") &
  wait $! || echo "host: the user manager of $name did not stop in order"
  end_commands
  kill -s RTMIN+4 "$init" # poweroff.target, systemd(1)
  await 30 ended init || echo "host: $name did not power off in order, cutting the power"
}

# Like sessions: SIGTERM, five seconds, SIGKILL. Not left to systemd-shutdown: it freezes everything first, a frozen command makes its
# nsenter outside stop itself (util-linux), and then nobody reaps the dead command for which systemd-shutdown waits.
end_commands() {
  local pid group=$cgroup/outlive-commands
  while read -r pid; do
    [ "$(readlink "/proc/$pid/ns/pid")" = "$(readlink /proc/self/ns/pid)" ] || kill -TERM "$pid" 2>/dev/null
  done <"$group/cgroup.procs"
  await 5 empty "$group" || echo 1 >"$group/cgroup.kill"
}

# Neither the end of somebody else's child nor an empty cgroup is an event that a shell could wait for.
await() { # SECONDS CMD…
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.01
  done
}

ended() { # init|keeper
  ! live_pid "$dir/$1" >/dev/null
}

empty() { # CGROUP
  ! grep -qs 'populated 1' "$1/cgroup.events"
}

# Leaves the home, takes everything else: also half a boot.
power_off() {
  local init
  stop_keeper
  [ -d "$dir" ] || return 0
  init=$(live_pid "$dir/init") && kill -KILL "$init"
  # PID 1 is not gone before the commands inside are reaped by their nsenter outside, which the cgroup takes along.
  await 10 remove_cgroup && await 10 ended keeper || return 1
  rm -f "$dir"/{init,keeper,ready,answer}
}

# Stopped first, because a fork between the look and the kill would leave a PID 1 that nobody knows. With PID 1 dead the keeper
# ends by itself (power_off waits for it): killed, it would leave a zombie to whoever adopts it.
stop_keeper() {
  local child
  [ -z "$reader" ] || kill "$reader" 2>/dev/null
  reader=''
  [ "$keeper" != "before ${!-}" ] || keeper=''
  keeper=${keeper/#before*/${!-}}
  [ -n "$keeper" ] || return 0
  kill -STOP "$keeper" 2>/dev/null
  child=$(pgrep -P "$keeper")
  kill -KILL "${child:-$keeper}" 2>/dev/null
  kill -CONT "$keeper" 2>/dev/null
  identity "$keeper" >"$dir/keeper"
  keeper=''
}

remove_cgroup() {
  [ -d "$cgroup" ] || return 0
  { echo 1 >"$cgroup/cgroup.kill"; } 2>/dev/null
  find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null
  [ ! -d "$cgroup" ]
}

throw_away() {
  power_off && forget
}
