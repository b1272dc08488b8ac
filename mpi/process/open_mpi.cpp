// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/process/open_mpi.hpp"

namespace lockstep::mpi {

bool is_bound_by_open_mpi(const Variables& variables) {
  const auto bound = variables.find("OMPI_MCA_orte_bound_at_launch");
  return bound != variables.end() && bound->second == "1";
}

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

}  // namespace lockstep::mpi
