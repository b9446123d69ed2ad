#!/bin/sh
# direct-attempt.sh ATTEMPT_DIR EXITS_DIR RECORD_SCRIPT HARD_MS GRACE_MS CREDENTIALS_DIR MARK PROGRAM…
#
# The keeper: what systemd is to a unit, to an attempt of the direct executor. It leads a
# session of its own (setsid), says who it is in ATTEMPT_DIR/process.json before it runs
# anything, keeps the deadline by timeout(1), and at the end leaves the same exit record as
# a unit (RECORD_SCRIPT is exit-record.sh) and kills what the attempt left behind. All of it
# without the daemon, which may be dead by then.
#
# OUTLIVE_NONCE in the environment is the identity of keeper, timeout and wrapper. OUTLIVE_MARK,
# which all that runs in the attempt inherits, is set here and not by the daemon: what carries
# it is in a session begun by this attempt, so a whole session can be killed by it.
# The other side of all this is src/executor/direct*.ts.
#
# What cannot be had from a shell: a group that nobody leaves. A process that both clears
# (or overwrites) its environment and has left the session of everything marked is not found.
umask 077
set -f

complain() {
  echo "direct-attempt: $1" >&2
}

# Sets ppid, session and ticks (fields 4, 6 and 22 of proc(5)'s stat) of process $1; false
# when it is gone. Its name may hold blanks and parentheses, so fields count after the last ") ".
look() {
  stat=
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  # shellcheck disable=SC2086 # split on purpose; set -f is on
  set -- ${stat##*) }
  ppid=$2
  session=$4
  ticks=${20-}
}

# Hundredths of a second since boot.
uptime_cs() {
  read -r up _ </proc/uptime
  up=${up%.*}${up#*.}
  while :; do case $up in 0?*) up=${up#0} ;; *) break ;; esac done
}

# Who we are, durable before anything runs. link(2) decides between two: the first stays.
introduce() {
  look $$ || return 1
  read -r boot </proc/sys/kernel/random/boot_id
  temporary=process.json.$$.new
  printf '{"v":1,"nonce":"%s","pid":%s,"startTicks":%s,"bootId":"%s","startedCs":%s,"deadlineCs":%s}\n' \
    "$OUTLIVE_NONCE" $$ "$ticks" "$boot" "$started" $((started + hard_ms / 10)) >"$temporary" &&
    sync "$temporary" && ln "$temporary" process.json
  made=$?
  rm -f "$temporary"
  [ "$made" -eq 0 ] && sync .
}

# SIGTERM is for the wrapper; timeout hands it on and sends SIGKILL when the grace is over.
# shellcheck disable=SC2317 # called by trap
stopped() {
  told=$((told + 1))
  kill -TERM "$child" 2>/dev/null
}

# The status of timeout, whose wait a trapped signal interrupts.
await() {
  status=
  while :; do
    before=$told
    wait "$child"
    code=$?
    # Reaped by the very wait that a signal interrupted.
    [ "$code" -eq 127 ] && [ -n "$status" ] && return
    status=$code
    [ "$told" -eq "$before" ] && return
  done
}

# From the status to systemd's words: result, how, what.
judge() {
  late=0
  [ $(((ended - started) * 10)) -ge $((hard_ms - 50)) ] && late=1
  case $late$status in
    1124) result=timeout how=killed what=TERM ;;
    1137) result=timeout how=killed what=KILL ;;
    ?0) result=success how=exited what=0 ;;
    # timeout itself could not go on, or found no program: systemd's status for that.
    ?12[567]) result=exit-code how=exited what=203 ;;
    0137)
      # Told to stop, it did not within its grace: systemd calls that a timeout too.
      how=killed what=KILL result=signal
      [ "$told" -gt 0 ] && result=timeout
      ;;
    ?129 | ?1[345]?) result=signal how=killed what=$(kill -l "$status" 2>/dev/null || echo "$((status - 128))") ;;
    *) result=exit-code how=exited what=$status ;;
  esac
}

# `stopping` tells an end of the machine from a person's stop. Asked only after a SIGTERM.
machine_state() {
  state=
  [ "$told" -gt 0 ] || return
  if command -v systemctl >/dev/null; then
    state=$(timeout -s KILL 3 systemctl is-system-running 2>/dev/null)
  elif command -v runlevel >/dev/null; then
    case $(runlevel 2>/dev/null) in *' 0' | *' 6') state=stopping ;; esac
  fi
}

# SIGKILL for every process that carries the mark, is in the session of one that does, or is
# the child of one; each is looked at once more right before. Again until none is left.
sweep() {
  look $$ && own=$session
  rounds=50
  while [ "$rounds" -gt 0 ]; do
    rounds=$((rounds - 1))
    set +f
    marked=$(grep -lzFx "OUTLIVE_MARK=$mark" /proc/[0-9]*/environ 2>/dev/null)
    set -f
    sessions=' ' pids=' '
    for file in $marked; do
      pid=${file#/proc/} pid=${pid%/environ}
      look "$pid" || continue
      # Of our own session only what is marked: we are in it as well.
      [ "$session" = "$own" ] || sessions="$sessions$session "
      pids="$pids$pid "
    done
    [ "$pids" = ' ' ] && return
    set +f
    for entry in /proc/[0-9]*; do
      pid=${entry#/proc/}
      look "$pid" || continue
      [ "$pid" -eq $$ ] && continue
      case $pids in *" $pid "*) ;; *) case $sessions in *" $session "*) ;; *)
        case $pids in *" $ppid "*) ;; *) continue ;; esac ;; esac ;; esac
      born=$ticks
      look "$pid" && [ "$ticks" = "$born" ] && kill -KILL "$pid" 2>/dev/null
    done
    set -f
    sleep 0.1
  done
  complain 'something of the attempt cannot be killed'
}

main() {
  dir=$1 exits=$2 record=$3 hard_ms=$4 grace_ms=$5 credentials=$6 mark=$7
  shift 7
  own_path=$PATH
  PATH=$PATH:/usr/local/bin:/usr/bin:/bin
  timeout=$(command -v timeout)
  told=0 child=
  trap stopped TERM
  trap : HUP INT
  cd "$dir" || exit 0
  unset OLDPWD PWD # The program's environment is what it was given, and no word of ours.
  exec >>wrapper.log 2>&1 </dev/null
  uptime_cs
  started=$up
  # Who reads this is told by the kernel when keeper, timeout and wrapper are all gone.
  # A name of our own: one that comes second must not take it from the first.
  alive=alive.$$
  rm -f "$alive"
  mkfifo "$alive" && exec 9<>"$alive"
  introduce || {
    complain 'not started: process.json is there already, or cannot be written'
    rm -f "$alive"
    exit 0
  }
  seconds=$((hard_ms / 1000)).$(printf %03d $((hard_ms % 1000)))
  grace=$((grace_ms / 1000)).$(printf %03d $((grace_ms % 1000)))
  OUTLIVE_MARK=$mark PATH=$own_path "$timeout" --signal=TERM --kill-after="$grace" "$seconds" "$@" &
  child=$!
  [ "$told" -gt 0 ] && kill -TERM "$child"
  await
  uptime_cs
  ended=$up
  judge
  machine_state
  SERVICE_RESULT=$result EXIT_CODE=$how EXIT_STATUS=$what INVOCATION_ID=$mark \
    OUTLIVE_MANAGER_STATE=${state:-unknown} sh "$record" "$exits"
  sweep
  [ "$credentials" = - ] || rm -rf "$credentials"
  rm -f "$alive"
}

# Read whole before it runs: a deploy may replace the file.
main "$@"
exit 0
