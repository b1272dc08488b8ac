// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/process/launch.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <unistd.h>

#include "core/system/launchers.hpp"
#include "core/text/parse_value.hpp"

namespace lockstep::mpi {

namespace {

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

/// Whether mpirun of Open MPI gave each rank processors of its own.
bool is_bound_by_open_mpi(const Variables& variables) {
  const auto bound = variables.find("OMPI_MCA_orte_bound_at_launch");
  return bound != variables.end() && bound->second == "1";
}

/// The parameters to set before MPI_Init. Never contains a variable that is set already. Without a fabric, only shared
/// memory and TCP can be used, for which a short list starts faster. Other MPI libraries do not read them.
/// @param is_oversubscribed  ranks outnumber processors: waiting ranks yield
Variables open_mpi_parameters(const Variables& variables, const HostFacts& host, bool is_oversubscribed) {
  Variables parameters;
  const bool is_transport_chosen =
      variables.contains("OMPI_MCA_pml") || variables.contains("OMPI_MCA_btl") || variables.contains("OMPI_MCA_mtl");
  if (!is_transport_chosen && !host.has_fabric) parameters["OMPI_MCA_pml"] = "ob1";
  if (is_oversubscribed && !variables.contains("OMPI_MCA_mpi_yield_when_idle"))
    parameters["OMPI_MCA_mpi_yield_when_idle"] = "1";
  if (!host.can_read_processes && !variables.contains(kCopyMechanism)) parameters[kCopyMechanism] = "none";
  return parameters;
}

}  // namespace

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
  return is_bound_by_open_mpi(variables) || (!slurm.empty() && slurm != "none");
}

int ranks_on_host(const Variables& variables) {
  const std::string local_size = local_size_of(variables);
  if (!local_size.empty()) return std::atoi(local_size.c_str());
  return is_step_task(variables) ? largest_of(value_of(variables, "SLURM_STEP_TASKS_PER_NODE")) : 0;
}

Variables start_settings(const Variables& variables, const HostFacts& host) {
  const bool is_oversubscribed = !is_bound_by_launcher(variables) && ranks_on_host(variables) > host.cpus;
  return open_mpi_parameters(variables, host, is_oversubscribed);
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
  job.restarts = std::atoi(value_of(variables, "SLURM_RESTART_COUNT").c_str());
  job.is_step_task = is_step_task(variables) && !is_under_mpirun(variables);
  const double end = parse_real(value_of(variables, "SLURM_JOB_END_TIME")).value_or(0);
  if (end > 0) job.end = end;
  return job;
}

}  // namespace lockstep::mpi
