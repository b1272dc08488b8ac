// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::trainer {

/// The fate of a file that this rank wrote to run.dir.
struct FileFacts {
  std::string fault = {};       ///< "" = everything worked
  std::string type = {};        ///< type of the file system, such as "nfs"; "" = another one
  double sync_ms = 0;           ///< writing 1 MB durably
  double free_gb = 0;           ///< free space
  double quota_gb = -1;         ///< space that the quota of this user leaves; negative = there is none
  double clock_ahead_s = 0;     ///< clock of the file system minus that of this host
  bool sees_first_rank = true;  ///< this rank reads the file that rank 0 wrote
};

/// A processor that a rank may use, and its place.
struct ProcessorFacts {
  int number = 0;
  int core = 0;
  int node = 0;  ///< NUMA node
};

/// The needs of the configuration, by engine::plan_job.
struct NeedFacts {
  std::string refusal = {};      ///< why training on this rank would refuse the configuration; "" = it would not
  double shared_mb = 0;          ///< memory that the ranks of a host share
  double bucket_mb = 0;          ///< gradients of a rank, which the other ranks of its host read
  double own_mb = 0;             ///< other memory of a rank, without activations and libraries
  double checkpoint_mb = 0;      ///< a checkpoint
  std::int64_t checkpoints = 0;  ///< checkpoints that exist at the same time; 0 = none is saved
};

/// The facts about the GPUs of a host. Only the first rank of a host has them.
struct GpuFacts {
  std::string driver = {};               ///< version
  std::vector<std::string> errors = {};  ///< sentences
};

/// The facts about one rank and its host, as far as this rank can see them.
struct DoctorFacts {
  std::string host = {};
  std::map<std::string, std::string> versions = {};   ///< the program and libraries
  std::map<std::string, std::string> variables = {};  ///< variables that must be equal on all ranks
  std::string level = {};                             ///< level of processors, see core/numbers/processor_level.hpp
  std::string vendor = {};
  int launched = 1;                          ///< ranks, as the launcher says
  int threads = 1;                           ///< computing and loader threads
  int processors = 1;                        ///< usable by this rank: the smaller of affinity mask and quota
  double quota = 0;                          ///< processors that the control group allows; 0 = no limit
  std::vector<ProcessorFacts> allowed = {};  ///< processors of the affinity mask
  int host_cores = 0;                        ///< cores of the host
  std::string governor = {};
  std::int64_t open_files = 0;               ///< limit
  double locked_mb = 0;                      ///< limit of locked memory; negative = unlimited
  bool has_fabric = false;                   ///< InfiniBand or Omni-Path
  double available_mb = 0;                   ///< memory
  double limit_mb = 0;                       ///< memory that the control group allows; 0 = no limit
  std::string huge_pages = {};               ///< transparent huge pages: "always", "madvise" or "never"
  bool shares_by_name = false;               ///< memory that ranks share is in /dev/shm, not in a memfd
  double shared_mb = 0;                      ///< size of /dev/shm
  double shared_free_mb = 0;                 ///< free space of /dev/shm
  std::vector<std::string> stale = {};       ///< files in /dev/shm that no process uses
  std::vector<std::string> interfaces = {};  ///< network interfaces with addresses, without the loop
  std::vector<std::string> runtimes = {};    ///< OpenMP libraries that are loaded
  bool copies_twice = false;                 ///< the system denies process_vm_readv
  std::string gpu = {};
  GpuFacts gpus = {};
  NeedFacts need = {};
  double memory_gbs = 0;    ///< measured bandwidth of memory, all ranks at once
  double products_gfs = 0;  ///< measured speed of float32 products, all ranks at once
  double latency_us = 0;    ///< half the time of 8 bytes to rank 0 and back; 0 on rank 0
  double message_gbs = 0;   ///< bandwidth of messages of 4 MB to rank 0
  double inside_gbs = 0;    ///< bus bandwidth of all_reduce over the ranks of this host; 0 = it has one rank
  double between_gbs = 0;   ///< the same over the first ranks of the hosts; 0 = one host, or not a first rank
  FileFacts files = {};
};

std::string packed(const DoctorFacts& facts);
DoctorFacts unpacked(const std::string& text);

/// The facts that this rank can look up. Not collective.
/// @param threads  computing and loader threads of the configuration
DoctorFacts rank_facts(int threads);

}  // namespace lockstep::trainer
