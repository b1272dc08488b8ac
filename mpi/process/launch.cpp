// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/process/launch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sys/uio.h>
#include <unistd.h>

#include "core/system/process.hpp"
#include "core/text/duration.hpp"
#include "core/text/parse_value.hpp"
#include "core/text/text_stream.hpp"

namespace lockstep::mpi {

namespace {

/// The first line that a command prints; empty when it fails.
std::string first_line_of(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "re"), ::pclose);
  std::array<char, 16384> line{};
  if (!pipe || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return "";
  const std::string text = line.data();
  return text.substr(0, text.find('\n'));
}

std::string value_of(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

std::string first_of(const Variables& variables, const std::string& name, const std::string& other_name) {
  const std::string value = value_of(variables, name);
  return value.empty() ? value_of(variables, other_name) : value;
}

bool has_any(const Variables& variables, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(),
                     [&variables](const char* name) { return !value_of(variables, name).empty(); });
}

/// The largest count of slurm's list form: "2(x3),1" is 2, 2, 2, 1.
int largest_of(const std::string& list) {
  int largest = 0;
  for (std::size_t begin = 0; begin < list.size();) {
    largest = std::max(largest, std::atoi(list.c_str() + begin));
    const std::size_t comma = list.find(',', begin);
    begin = comma == std::string::npos ? list.size() : comma + 1;
  }
  return largest;
}

/// The number of ranks that mpirun started on this host, as text; empty if mpirun did not start this process.
std::string local_size_of(const Variables& variables) {
  for (const char* name : kLocalSizeVariables) {
    if (const std::string size = value_of(variables, name); !size.empty()) return size;
  }
  return "";
}

bool is_under_mpirun(const Variables& variables) { return !local_size_of(variables).empty(); }

/// Whether this process is a task of an srun step, not the batch script or the shell of an allocation, whose steps
/// slurm numbers from 2^32 downwards where it sets the variable at all.
bool is_step_task(const Variables& variables) {
  constexpr unsigned long kFirstReservedStep = 0xfffffff0UL;
  const std::string step = first_of(variables, "SLURM_STEP_ID", "SLURM_STEPID");
  char* end = nullptr;
  const unsigned long number = std::strtoul(step.c_str(), &end, 10);
  return !step.empty() && *end == '\0' && number < kFirstReservedStep;
}

}  // namespace

std::optional<SlurmJob> slurm_job() { return slurm_job_of(current_variables()); }

std::optional<double> seconds_left(const SlurmJob& job) {
  if (job.end) {
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    return *job.end - now.count();
  }
  const std::string line = first_line_of("timeout -k 1 5 squeue -h -j " + job.id + " -O TimeLeft 2>/dev/null");
  return parse_duration(line.substr(0, line.find(' ')));
}

std::string description_of(const SlurmJob& job) {
  return first_line_of("timeout -k 1 5 scontrol show job -o " + job.id + " 2>/dev/null");
}

Variables current_variables() {
  Variables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

bool is_bound_by_launcher(const Variables& variables) {
  const std::string slurm = value_of(variables, "SLURM_CPU_BIND_TYPE");
  return value_of(variables, "OMPI_MCA_orte_bound_at_launch") == "1" || (!slurm.empty() && slurm != "none");
}

int ranks_on_host(const Variables& variables) {
  const std::string local_size = local_size_of(variables);
  if (!local_size.empty()) return std::atoi(local_size.c_str());
  return is_step_task(variables) ? largest_of(value_of(variables, "SLURM_STEP_TASKS_PER_NODE")) : 0;
}

/// Without a fabric, only shared
/// memory and TCP can be used, for which a short list starts faster. Where ranks outnumber processors, waiting ranks
/// yield. Other MPI libraries do not read the parameters.
Variables start_settings(const Variables& variables, const HostFacts& host) {
  const bool is_oversubscribed = !is_bound_by_launcher(variables) && ranks_on_host(variables) > host.cpus;
  Variables parameters;
  const bool is_transport_chosen =
      variables.contains("OMPI_MCA_pml") || variables.contains("OMPI_MCA_btl") || variables.contains("OMPI_MCA_mtl");
  if (!is_transport_chosen && !host.has_fabric) parameters["OMPI_MCA_pml"] = "ob1";
  if (is_oversubscribed && !variables.contains("OMPI_MCA_mpi_yield_when_idle"))
    parameters["OMPI_MCA_mpi_yield_when_idle"] = "1";
  if (!host.can_read_processes && !variables.contains(kCopyMechanism)) parameters[kCopyMechanism] = "none";
  return parameters;
}

std::string launcher_of(const Variables& variables) {
  if (is_under_mpirun(variables)) return "mpirun";
  return is_step_task(variables) ? "srun" : "none";
}

std::string launch_fault(const Variables& variables, int world_size) {
  if (!is_step_task(variables) || is_under_mpirun(variables)) return "";
  const std::string tasks = first_of(variables, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
  if (std::atoi(tasks.c_str()) <= 1 || world_size > 1) return "";
  // Before MPI_Init nothing but the lack of any line to the process manager is proof.
  if (world_size == 0 && has_any(variables, {"PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_FD"})) return "";
  return "Slurm started " + tasks +
         " tasks, but MPI found only one; each would train alone. Start with `srun --mpi=pmix` (`srun --mpi=list` "
         "shows the available ones), or with `mpirun` inside the allocation";
}

std::optional<SlurmJob> slurm_job_of(const Variables& variables) {
  SlurmJob job{.id = first_of(variables, "SLURM_JOB_ID", "SLURM_JOBID")};
  if (job.id.empty() || job.id.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  job.array_id = value_of(variables, "SLURM_ARRAY_JOB_ID");
  job.array_task = value_of(variables, "SLURM_ARRAY_TASK_ID");
  job.restarts = std::atoi(value_of(variables, "SLURM_RESTART_COUNT").c_str());
  job.is_step_task = is_step_task(variables) && !is_under_mpirun(variables);
  const double end = parse_real(value_of(variables, "SLURM_JOB_END_TIME")).value_or(0);
  if (end > 0) job.end = end;
  return job;
}

bool can_read_processes() {
  int from = 1;
  int copy = 0;
  iovec local{&copy, sizeof copy};
  iovec remote{&from, sizeof from};
  if (::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) != static_cast<ssize_t>(sizeof from)) return false;
  int scope = 0;  // 2: administrators only, 3: nobody
  FileReader("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  return scope < 2 || (scope == 2 && ::geteuid() == 0);
}

std::string process_memory_remark() {
  const char* const chosen = std::getenv(kCopyMechanism);
  if (can_read_processes() || (chosen != nullptr && std::string(chosen) != "none")) return "";
  return "the system denies process_vm_readv, so Open MPI copies messages twice, through shared memory; results are "
         "the same. To allow it, start the container with --cap-add=SYS_PTRACE, or set kernel.yama.ptrace_scope to 0 "
         "or "
         "1";
}

}  // namespace lockstep::mpi
