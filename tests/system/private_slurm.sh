#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: private_slurm.sh FOLDER COMMAND [ARGUMENT...]
#
# Runs COMMAND beside a slurm of its own: one node, this machine, with name, network and processes apart, so that
# neither a busy port nor another slurm matters. FOLDER, an absolute path, takes the daemons' files. Exit code 77: no
# slurm here, or not permitted.
#
# All processes live in a process namespace: however this ends, the kernel ends them.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin

readonly space=(unshare --uts --net --mount --pid --fork --kill-child --mount-proc)

main() {
  {
    hostname lockstep0 && ip link set lo up &&
      ip addr add 10.77.0.1/24 dev lo && # beside 127.0.0.1, with which alone slurm's look-ups take 20 s
      printf '127.0.0.1 localhost\n10.77.0.1 lockstep0\n' >"$folder/hosts" &&
      mount --bind "$folder/hosts" /etc/hosts
  } &>"$folder/node.log" || give_up "$(head -1 "$folder/node.log")"
  start_munge
  write_configuration
  export OMPI_MCA_oob_tcp_if_include=lo # the only interface
  export SLURM_CONF=$folder/slurm.conf
  slurmctld -i -f "$SLURM_CONF" &>"$folder/slurmctld.out" || give_up "$(tail -1 "$folder/slurmctld.out")"
  slurmd -f "$SLURM_CONF" -N lockstep0 &>"$folder/slurmd.out" || give_up "$(tail -1 "$folder/slurmd.out")"
  wait_for_node
  "$@"
}

start_munge() {
  head -c 1024 /dev/urandom >"$folder/munge.key"
  chmod 400 "$folder/munge.key"
  munged -f --key-file="$folder/munge.key" --socket="$folder/munge.sock" --pid-file="$folder/munged.pid" \
    --log-file="$folder/munged.log" --seed-file="$folder/munged.seed" &>"$folder/munged.out" ||
    give_up "$(tail -1 "$folder/munged.out")"
}

write_configuration() {
  cat >"$folder/slurm.conf" <<CONFIGURATION
ClusterName=lockstep
SlurmctldHost=lockstep0(10.77.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=20001
SlurmdPort=20002
AuthType=auth/munge
AuthInfo=socket=$folder/munge.sock,cred_expire=5
CredType=cred/munge
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0
ReturnToService=2
KillWait=5
JobRequeue=1
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
NodeName=lockstep0 NodeAddr=10.77.0.1 NodeHostname=lockstep0 CPUs=$(nproc --all) State=UNKNOWN
PartitionName=main Nodes=lockstep0 Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
CONFIGURATION
  mkdir -p "$folder/state" "$folder/spool"
}

wait_for_node() {
  local tries
  for ((tries = 0; tries < 100; ++tries)); do
    [[ $(sinfo -h -o %T 2>"$folder/sinfo.log") != idle* ]] || return 0
    sleep 0.1
  done
  give_up "the node is '$(sinfo -h -o %T)': $(tail -1 "$folder/slurmd.log")"
}

# give_up WHY
give_up() {
  echo "no private slurm here: $1"
  exit 77
}

folder=$1
if [[ $$ == 1 ]]; then
  main "${@:2}"
else
  for program in munged slurmctld slurmd sbatch srun ip; do
    command -v "$program" >/dev/null || give_up "$program is not installed"
  done
  mkdir -p "$folder"
  "${space[@]}" true &>"$folder/space.log" || give_up "$(head -1 "$folder/space.log")"
  exec "${space[@]}" "$0" "$@"
fi
