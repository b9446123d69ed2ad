#!/bin/bash
# The inside of a private host. Started by ops/scripts/host as the first process of new namespaces; builds a file system in them,
# proves that nothing of it is the machine's, and becomes systemd.
#
# host-inside.sh join|build DIR CGROUP REPO CALLER_NAMESPACES
set -eu -o pipefail
umask 022
PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH

agent=agent uid=1000
dir=$2 cgroup=$3 repo=$4 caller_namespaces=$5
scratch=$dir/mnt root=$dir/mnt/root
fresh=(tmp var/tmp run var/log home dev)
dropped=-sys_module,-sys_time,-sys_rawio,-syslog,-wake_alarm,-block_suspend,-mac_admin,-mac_override,-sys_pacct,-net_admin
broken=${OUTLIVE_HOST_BREAK-} # tests only: leaves one protection out, a guard must notice
layers=0

refuse() {
  echo "refused to start systemd: $*"
  exit 78
}

mount() { # without libmount's notes in the machine's /run/mount
  command mount --no-mtab "$@"
}

# --- the caller's cgroup ----------------------------------------------------------------------------------------------------

# A cgroup namespace's root is the group in which it is made: join first, then unshare.
join() {
  local stat fields
  echo 0 >"$cgroup/cgroup.procs"
  read -r stat </proc/self/stat # still the machine's /proc, so this is the pid as seen from there
  read -r -a fields <<<"${stat##*) }"
  echo "${stat%% *} ${fields[19]}" >"$dir/init.new"
  mv "$dir/init.new" "$dir/init"
  shift
  [ "$broken" = cgroup ] || exec unshare --cgroup "$0" build "$@"
  exec "$0" build "$@"
}

# --- the file system --------------------------------------------------------------------------------------------------------

build() {
  guard_namespaces
  mount -t tmpfs -o mode=700 outlive-scratch "$scratch"
  mkdir "$root"
  layer / "$root"
  other_file_systems
  fresh_file_systems
  devices
  kernel_file_systems
  the_repo
  the_user
  the_units
  cd "$root"
  mkdir .old
  pivot_root . .old
  umount --no-mtab -l /.old
  rmdir /.old
  guard_namespaces
  guard_mounts
  # The tests break protections one at a time; should a guard miss it, nothing must run.
  [ -z "$broken" ] || { echo "the guards did not notice the broken $broken"; exit 99; }
  exec setpriv --bounding-set="$dropped" env -i container=other PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin \
    SYSTEMD_UNIT_PATH=/run/systemd/transient:/run/systemd/system:/run/outlive-host/units \
    SYSTEMD_GENERATOR_PATH=/run/outlive-host/none \
    /lib/systemd/systemd --system --unit=outlive-host.target --show-status=no
}

# SRC as it is, writable, and nothing is ever written back. The bind in between takes SRC without what is mounted below it, and
# spares us the escaping of : and , in overlay options.
layer() { # SRC DST [OVERLAY-OPTIONS]
  local own=$scratch/layer-$((layers += 1))
  mkdir -p "$own/lower" "$own/upper" "$own/work"
  mount --bind "$1" "$own/lower"
  chown --reference="$1" "$own/upper"
  chmod --reference="$1" "$own/upper"
  mount -t overlay -o "lowerdir=$own/lower,upperdir=$own/upper,workdir=$own/work${3:+,$3}" outlive "$2"
}

mount_points() { # what is mounted at or below DIR, parents first
  local top=${1%/} point
  while read -r _ _ _ _ point _; do
    printf -v point %b "${point//\\/\\0}" # \040 is a space in mountinfo, \0040 is one for %b
    case $point/ in "$top"/*) printf '%s\n' "$point" ;; esac
  done </proc/self/mountinfo
}

# An overlay of / does not see what is mounted below it: a separate /usr or /var, a container's resolv.conf. What is hidden under a
# mount stays hidden, too.
other_file_systems() {
  local point points seen=' '
  mapfile -t points < <(mount_points /)
  for point in "${points[@]}"; do
    case $point/ in
      // | /proc/* | /sys/* | /dev/* | /run/* | /tmp/* | /var/tmp/* | /var/log/* | /home/* | "$dir"/*) continue ;;
      /boot/* | /media/* | /snap/* | /var/snap/* | /var/lib/docker/* | /var/lib/containers/*) continue ;;
    esac
    case $seen in *" $point "*) continue ;; esac
    seen+="$point "
    if [ -d "$point" ]; then
      mkdir -p "$root$point"
      layer "$point" "$root$point" 2>/dev/null || mount --bind -o ro "$point" "$root$point"
    elif [ -e "$point" ]; then
      [ -e "$root$point" ] || touch "$root$point"
      mount --bind -o ro "$point" "$root$point"
    fi
  done
}

# Debian's tmpfiles rules empty /tmp at boot: without one of its own that would be the machine's.
fresh_file_systems() {
  local path mode
  for path in "${fresh[@]}"; do
    [ "$path" = "$broken" ] && continue
    mode=755
    case $path in *tmp) mode=1777 ;; esac
    mount -t tmpfs -o "mode=$mode,nosuid" "outlive-$path" "$root/$path"
  done
  mkdir -p "$root"/run/{systemd/system,user,outlive-host/none}
  # A disk that tests may fill: the user's own, and small.
  mkdir "$root/run/outlive-host/small"
  mount -t tmpfs -o size=12m,mode=700,uid=1000,gid=1000,nosuid,nodev outlive-small "$root/run/outlive-host/small"
  mkdir -m 1777 "$root/run/lock"
  # Names are still resolved where resolv.conf points into the machine's /run.
  [ ! -L /etc/resolv.conf ] || cp --remove-destination -L /etc/resolv.conf "$root/etc/resolv.conf" || true
}

# Not the machine's /dev: systemd makes links and directories in it, and shared memory would outlive the host.
devices() {
  local node nodes=()
  for node in null zero full random urandom tty fuse net/tun; do [ ! -c "/dev/$node" ] || nodes+=("$node"); done
  (cd /dev && cp -a --parents "${nodes[@]}" "$root/dev")
  mkdir "$root"/dev/{pts,shm,mqueue}
  mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 outlive-pts "$root/dev/pts"
  mount -t tmpfs -o mode=1777,nosuid,nodev outlive-shm "$root/dev/shm"
  mount -t mqueue -o nosuid,nodev,noexec outlive-mqueue "$root/dev/mqueue"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  ln -s /proc/self/fd/0 "$root/dev/stdin"
  ln -s /proc/self/fd/1 "$root/dev/stdout"
  ln -s /proc/self/fd/2 "$root/dev/stderr"
}

kernel_file_systems() {
  local nested=$root/run/outlive-host/proc
  mount -t proc proc "$root/proc"
  # The kernel lets a user namespace mount a /proc only where some /proc stands uncovered, and ours is about to be covered.
  mkdir "$nested"
  mount -t proc proc "$nested"
  # systemd raises limits in /proc/sys at its start, and those are the machine's.
  mount --bind -o ro "$root/proc/sys" "$root/proc/sys"
  cat /proc/sys/kernel/random/uuid >"$scratch/boot-id"
  mount --bind -o ro "$scratch/boot-id" "$root/proc/sys/kernel/random/boot_id"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
}

# Read-only and live where everybody may read it, whatever stands above it. Else a layer in which the modes are mended.
the_repo() {
  local target=$root/opt/outlive point
  local unreadable=(-type d ! -perm -005 -o -type f ! -perm -004 -o -type f -perm -100 ! -perm -001)
  mkdir -p "$target"
  if [ -z "$(find "$repo" \( "${unreadable[@]}" \) -print -quit 2>/dev/null)" ]; then
    mount --rbind "$repo" "$target"
  else
    mendable_layer "$repo" "$target"
    mount_points "$repo" | while read -r point; do
      [ "$point" = "$repo" ] || mendable_layer "$point" "$target${point#"$repo"}"
    done
    find "$target" \( "${unreadable[@]}" \) -exec chmod o+rX {} + 2>/dev/null || true
  fi
  mount_points "$target" | while read -r point; do mount -o remount,bind,ro "$point"; done
}

# metacopy copies an inode without its data: 0.7 s for 31,000 files of 0.7 GB. A kernel without it copies the data, too.
mendable_layer() { # SRC DST
  layer "$1" "$2" metacopy=on || layer "$1" "$2"
}

# In the layer over /etc only. A person who has this uid on the machine gives way, and so does everybody who lingers there.
the_user() {
  sed -i -e "/^$agent:/d" -e "/^[^:]*:[^:]*:$uid:/d" "$root"/etc/passwd "$root"/etc/group
  sed -i -e "/^$agent:/d" "$root"/etc/shadow
  echo "$agent:x:$uid:$uid::/home/$agent:/bin/bash" >>"$root/etc/passwd"
  echo "$agent:x:$uid:" >>"$root/etc/group"
  echo "$agent:*:20000:0:99999:7:::" >>"$root/etc/shadow"
  rm -rf "$root/var/lib/systemd/linger"
  mkdir -p "$root/var/lib/systemd/linger"
  touch "$root/var/lib/systemd/linger/$agent"
  mkdir "$root/home/$agent"
  mount --bind "$dir/home" "$root/home/$agent"
  # The registry lies on /run, which Debian mounts noexec.
  mount -o remount,bind,exec,nosuid,nodev "$root/home/$agent"
}

# The units that systemd ships, without what the machine or its distribution adds to targets: no fstab, no enabled services.
# modprobe@ is left out because kernel modules are the machine's.
the_units() {
  local own=$root/run/outlive-host
  # Copies: a link would turn systemd's aliases, themselves links, into units of their own.
  cp -a /lib/systemd/system "$own/units"
  rm -rf "$own"/units/{*.wants,*.requires,modprobe@.service}
  cat >"$own/units/outlive-host.target" <<U
[Unit]
Description=Private host
DefaultDependencies=no
Wants=systemd-journald.service dbus.socket systemd-logind.service outlive-ready.service
U
  cat >"$own/units/outlive-ready.service" <<U
[Unit]
Requires=user@$uid.service
After=user@$uid.service systemd-logind.service
OnFailure=outlive-failed.service
[Service]
Type=oneshot
User=$agent
Environment=XDG_RUNTIME_DIR=/run/user/$uid
ExecStart=/bin/sh -c 'systemctl --user is-system-running --wait >/run/outlive-host/fifo'
SuccessExitStatus=1
U
  cat >"$own/units/outlive-failed.service" <<U
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'echo failed >/run/outlive-host/fifo'
U
  touch "$own/fifo"
  mount --bind "$dir/fifo" "$own/fifo"
  settings
}

settings() {
  local run=$root/run/systemd
  mkdir -p "$run"/{journald,system}.conf.d "$run/journal" "$root/var/log/journal"
  cat "$dir/machine-id" >"$root/etc/machine-id"
  # `journalctl --user` reads the user's own file, which only the persistent journal has; `flushed` makes it so from the start.
  printf '[Journal]\nStorage=persistent\nSplitMode=uid\nAudit=no\n' >"$run/journald.conf.d/zz-outlive.conf"
  touch "$run/journal/flushed"
  mount --bind "$dir/journal" "$root/var/log/journal"
  # A process that ignores SIGTERM must not delay a reboot for 90 s. Units of the user have their own manager's timeouts.
  printf '[Manager]\nDefaultTimeoutStopSec=10s\n' >"$run/system.conf.d/zz-outlive.conf"
}

# --- guards -----------------------------------------------------------------------------------------------------------------

# In the machine's own namespaces systemd would move every process into its cgroups, and take over the root.
guard_namespaces() {
  local kind inode
  [ $$ -eq 1 ] || refuse 'this is not the first process of a PID namespace'
  for kind in mnt pid cgroup; do
    inode=$(readlink "/proc/self/ns/$kind")
    case " $caller_namespaces " in *" $inode "*) refuse "the $kind namespace is the machine's" ;; esac
    [ -n "$inode" ] || refuse "cannot read the $kind namespace"
  done
}

guard_mounts() {
  local path
  for path in "${fresh[@]}"; do
    # The last mount on a path is the one that is seen.
    awk -v point="/$path" -v source="outlive-$path" \
      '$5 == point { ours = index($0, " - tmpfs " source " ") } END { exit !ours }' /proc/self/mountinfo ||
      refuse "/$path is not a file system of its own"
  done
}

"$1" "$@"
