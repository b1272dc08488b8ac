// SPDX-License-Identifier: BSD-3-Clause
// NCCL's functions for communicators.
#include <nccl.h>

#include <cstring>
#include <memory>
#include <string>

#include "fake_gpu/nccl/communicator.hpp"
#include "fake_gpu/nccl/errors.hpp"
#include "fake_gpu/nccl/group.hpp"
#include "fake_gpu/nccl/joining.hpp"
#include "fake_gpu/nccl/place.hpp"

namespace lockstep::fake_gpu::nccl {

namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;

static_assert(sizeof(Place) <= sizeof(ncclUniqueId));

Place place_of(const ncclUniqueId& id) {
  Place place;
  std::memcpy(&place, id.internal, sizeof place);
  return place;
}

/// @param inherited  where the configuration does not say
FakeCommunicator::CommOptions options_of(const ncclConfig_t* config, const FakeCommunicator::CommOptions& inherited) {
  if (config == nullptr) return inherited;
  if (config->magic != kConfigMagic) {
    throw Refusal(ncclInvalidArgument, "The configuration was not initialized by NCCL_CONFIG_INITIALIZER.");
  }
  FakeCommunicator::CommOptions options = inherited;
  if (config->blocking != NCCL_CONFIG_UNDEF_INT) options.is_blocking = config->blocking != 0;
  return options;
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

void require_not_null(const void* pointer, const char* name) {
  if (pointer == nullptr) throw Refusal(ncclInvalidArgument, std::string("The argument ") + name + " is null.");
}

ncclResult_t open_communicator(ncclComm_t* comm, Position position, const ncclUniqueId& id,
                               const ncclConfig_t* config) {
  require_not_null(comm, "comm");
  *comm = NCCL_COMM_NULL;
  if (position.size < 1 || position.size > kMaxRanks || position.rank < 0 || position.rank >= position.size) {
    throw Refusal(ncclInvalidArgument, "Rank " + std::to_string(position.rank) + " of " +
                                           std::to_string(position.size) + " ranks is not possible; the maximum is " +
                                           std::to_string(kMaxRanks) + " ranks.");
  }
  const FakeCommunicator::CommOptions options = options_of(config, {.device = current_device(), .is_blocking = true});
  const auto joining = std::make_shared<Joining>(place_of(id), position, options.device);
  const auto communicator = std::make_shared<FakeCommunicator>(joining->member(), options);
  const ncclResult_t result = Group::of_this_thread().begin(communicator, [joining] { return joining->is_complete(); });
  *comm = handle_of(communicator);
  return result;
}

template <class Function>
ncclResult_t with(ncclComm_t comm, Function function) {
  return grouped([&] { return function(*find(comm)); });
}

}  // namespace

}  // namespace lockstep::fake_gpu::nccl

using namespace lockstep::fake_gpu::nccl;

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) { return last_error(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return guarded([&] {
    require_not_null(id, "id");
    const Place place = make_place(sizeof(MeetingRegion));
    *id = {};
    std::memcpy(id->internal, &place, sizeof place);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return grouped([&] { return open_communicator(comm, {rank, ranks}, id, config); });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config) {
  return grouped([&] {
    require_not_null(part, "newcomm");
    const std::shared_ptr<FakeCommunicator> parent = find(comm);
    parent->require_ready();
    const FakeCommunicator::CommOptions options = options_of(config, parent->options());
    return Group::of_this_thread().begin(parent, splitting(*parent, color, key, part, options));
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return with(comm, [](FakeCommunicator& communicator) { return communicator.finalize(); });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == NCCL_COMM_NULL) return ncclSuccess;
  return with(comm, [comm](FakeCommunicator& communicator) {
    communicator.destroy();
    forget(comm);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == NCCL_COMM_NULL) return ncclSuccess;
  return with(comm, [comm](FakeCommunicator& communicator) {
    communicator.abort();
    forget(comm);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  return guarded([&] {
    require_not_null(state, "asyncError");
    *state = find(comm)->state();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  return with(comm, [count](FakeCommunicator& communicator) {
    *count = communicator.member().position().size;
    return ncclSuccess;
  });
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  return with(comm, [rank](FakeCommunicator& communicator) {
    *rank = communicator.member().position().rank;
    return ncclSuccess;
  });
}
