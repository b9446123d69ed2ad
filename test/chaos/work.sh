#!/bin/sh
# work.sh DIRECTORY KEY LEASE TENTHS STATUS MANNER: the body of every work unit of a round.
#
# It tells the journal when it begins and ends, and in which unit. While it or anything it
# started lives, it holds a kernel lock named by its key and one named by its lease: a
# second one at the same time cannot get it and says so, whatever the daemon believes.
directory=$1 key=$2 lease=$3 tenths=$4 status=$5 manner=$6
unit=$(sed -n 's,^0::.*/,,p' /proc/self/cgroup)

# One write with O_APPEND: lines of several writers do not mix.
say() {
  printf '%s %s %s %s\n' "$1" "$key" "$unit" "$$" >>"$directory/journal"
}

[ "$manner" = stubborn ] && trap '' TERM
exec 8>>"$directory/locks/key-$key"
flock -n 8 || say two_of_one_key
if [ "$lease" != - ]; then
  exec 9>>"$directory/locks/lease-$lease"
  flock -n 9 || say two_on_one_lease
fi
say begin
# A process that leaves session and terminal and does not mind SIGTERM.
[ "$manner" = orphan ] && { setsid sh -c 'trap "" TERM; exec sleep 600' >/dev/null 2>&1 & }
while [ "$tenths" -gt 0 ]; do
  tenths=$((tenths - 1))
  echo "$key $tenths"
  sleep 0.1
done
say end
exit "$status"
