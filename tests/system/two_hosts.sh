#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: two_hosts.sh FOLDER RANKS_PER_HOST PROGRAM [ARGUMENT...]
#
# Runs PROGRAM under mpirun on two hosts of this machine: nodea and nodeb have names, networks, shared memory and
# mounts of their own, and are tied by a virtual cable. FOLDER takes small files, of which `namespaces` tells what was
# made. Exit code 77: not permitted here. TWO_HOSTS_SUPERVISOR is put before mpirun.
#
# All processes live in a process namespace, and what they make in other namespaces: however this ends, the kernel
# ends them and takes all of it back.
set -euo pipefail

readonly pid_space=(unshare --pid --fork --mount-proc --kill-child)

main() {
  mkdir -p "$folder/session"
  readlink /proc/self/ns/pid >"$folder/namespaces"
  printf '127.0.0.1 localhost\n10.78.0.1 nodea\n10.78.0.2 nodeb\n' >"$folder/hosts"
  start_host nodea
  start_host nodeb
  tie_hosts &>"$folder/cable.log" || give_up "$folder/cable.log"
  write_launcher
  local supervisor
  read -ra supervisor <<<"${TWO_HOSTS_SUPERVISOR:-}"
  on nodea ${supervisor[@]+"${supervisor[@]}"} \
    mpirun --mca plm_rsh_agent "$folder/launch" --mca orte_tmpdir_base "$folder/session" \
    --mca oob_tcp_if_include veth0 --mca btl_tcp_if_include veth0 --mca pml ob1 --mca btl self,vader,tcp \
    --oversubscribe --bind-to none --host "nodea:$ranks,nodeb:$ranks" -np $((2 * ranks)) "$@"
}

# start_host NAME: a process that holds the namespaces of a host.
start_host() {
  local tries
  unshare --uts --net --ipc --mount bash -c "
    hostname $1 && ip link set lo up && mount --bind '$folder/hosts' /etc/hosts &&
    mount -t tmpfs -o size=1g tmpfs /dev/shm && touch '$folder/$1.up' && exec sleep infinity" &>"$folder/$1.log" &
  echo $! >"$folder/$1.pid"
  for ((tries = 0; tries < 500; ++tries)); do
    if [[ -e $folder/$1.up ]]; then
      readlink "/proc/$!/ns/"{uts,net,ipc,mnt} >>"$folder/namespaces"
      return 0
    fi
    kill -0 $! 2>/dev/null || give_up "$folder/$1.log"
    sleep 0.02
  done
  give_up "$folder/$1.log"
}

tie_hosts() {
  local a b
  a=$(<"$folder/nodea.pid")
  b=$(<"$folder/nodeb.pid")
  nsenter -t "$a" -n ip link add veth0 type veth peer name veth0 netns "$b" &&
    nsenter -t "$a" -n ip addr add 10.78.0.1/24 dev veth0 &&
    nsenter -t "$b" -n ip addr add 10.78.0.2/24 dev veth0 &&
    nsenter -t "$a" -n ip link set veth0 up &&
    nsenter -t "$b" -n ip link set veth0 up
}

# What mpirun calls in the place of ssh: options, a host, a command line.
write_launcher() {
  cat >"$folder/launch" <<EOF_LAUNCH
#!/usr/bin/env bash
while [[ \$1 == -* ]]; do shift; done
host=\$1
shift
exec nsenter -t "\$(<'$folder'/"\$host".pid)" -m -u -i -n --wd="\$PWD" /bin/bash -c "\$*"
EOF_LAUNCH
  chmod +x "$folder/launch"
}

on() {
  nsenter -t "$(<"$folder/$1.pid")" -m -u -i -n --wd="$PWD" "${@:2}"
}

# give_up LOG: says why in the words of its first line.
give_up() {
  echo "two hosts cannot be made here: $(head -1 "$1")"
  exit 77
}

folder=$1 ranks=$2
if [[ $$ == 1 ]]; then
  main "${@:3}"
else
  "${pid_space[@]}" true &>"$folder/space.log" || give_up "$folder/space.log"
  exec "${pid_space[@]}" "$0" "$@"
fi
