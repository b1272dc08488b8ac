// SPDX-License-Identifier: BSD-3-Clause
// The functions that the Fortran module (lockstep.F90) calls in addition to the C interface: arrays are descriptors.
#include <lockstep/core/error.hpp>
#include <lockstep/lockstep.h>

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace {

/// CFI_cdesc_t of gfortran (ISO_Fortran_binding.h), which a C++ compiler need not have.
struct Descriptor {
  struct Dimension {
    std::ptrdiff_t lower_bound;
    std::ptrdiff_t extent;
    std::ptrdiff_t stride;  // in bytes
  };
  void* base;
  std::size_t element_bytes;
  int version;
  std::int8_t rank;
  std::int8_t attribute;
  std::int16_t type;  // intrinsic type in the low byte
  Dimension dimensions[LOCKSTEP_MAX_RANK];
};

constexpr int kVersion = 1;
constexpr int kInteger = 1;
constexpr int kReal = 3;

/// LOCKSTEP_FLOAT32 and so on; 0 = there is no such type, which is found when the array is used.
int type_of(const Descriptor& array) {
  if (array.version != kVersion) return 0;
  const int kind = array.type & 0xff;
  if (kind == kReal)
    return array.element_bytes == 8 ? LOCKSTEP_FLOAT64 : array.element_bytes == 4 ? LOCKSTEP_FLOAT32 : 0;
  if (kind != kInteger) return 0;
  return array.element_bytes == 8 ? LOCKSTEP_INT64 : array.element_bytes == 4 ? LOCKSTEP_INT32 : 0;
}

}  // namespace

/// Arrays that were named for the next call of a run.
struct lockstep_f_arrays {
  std::vector<lockstep_array> arrays = {};
  std::deque<std::string> names = {};
};

extern "C" {

/// Adds an array: its last dimension becomes the first one. `list` is made when it is NULL.
void lockstep_f_add(lockstep_f_arrays** list, const char* name, const void* descriptor) {
  const auto& given = *static_cast<const Descriptor*>(descriptor);
  if (*list == nullptr) *list = new lockstep_f_arrays;
  lockstep_array array = {};
  array.name = (*list)->names.emplace_back(name).c_str();
  array.type = type_of(given);
  array.rank = given.rank;
  array.data = given.base;
  for (int i = 0; i < given.rank && i < LOCKSTEP_MAX_RANK; ++i) {
    const Descriptor::Dimension& dimension = given.dimensions[given.rank - 1 - i];
    array.sizes[i] = dimension.extent;
    array.strides[i] = dimension.stride;
  }
  (*list)->arrays.push_back(array);
}

void lockstep_f_clear(lockstep_f_arrays** list) {
  delete *list;
  *list = nullptr;
}

int lockstep_f_train(lockstep_run* run, lockstep_f_arrays** list, double* loss) {
  const std::span<lockstep_array> arrays = *list == nullptr ? std::span<lockstep_array>() : (*list)->arrays;
  const int code = lockstep_train(run, arrays.data(), static_cast<int>(arrays.size()), loss);
  lockstep_f_clear(list);
  return code;
}

/// @param lane  -1 = dealt in turn
int lockstep_f_push(lockstep_run* run, int64_t lane, lockstep_f_arrays** list) {
  const std::span<lockstep_array> arrays = *list == nullptr ? std::span<lockstep_array>() : (*list)->arrays;
  const int count = static_cast<int>(arrays.size());
  const int code =
      lane < 0 ? lockstep_push(run, arrays.data(), count) : lockstep_push_lane(run, lane, arrays.data(), count);
  lockstep_f_clear(list);
  return code;
}

int lockstep_f_predict(lockstep_run* run, lockstep_f_arrays** inputs, lockstep_f_arrays** outputs) {
  const std::span<lockstep_array> in = *inputs == nullptr ? std::span<lockstep_array>() : (*inputs)->arrays;
  const std::span<lockstep_array> out = *outputs == nullptr ? std::span<lockstep_array>() : (*outputs)->arrays;
  const int code =
      lockstep_predict(run, in.data(), static_cast<int>(in.size()), out.data(), static_cast<int>(out.size()));
  lockstep_f_clear(inputs);
  lockstep_f_clear(outputs);
  return code;
}

/// Ends the job of a program that reads no status: an error on one rank would leave the others waiting.
void lockstep_f_fail(const lockstep_run* run, int code) {
  std::fprintf(stderr, "lockstep: %s\n", lockstep_error(run));
  int is_running = 0;
  int is_over = 0;
  MPI_Initialized(&is_running);
  MPI_Finalized(&is_over);
  if (is_running != 0 && is_over == 0) MPI_Abort(MPI_COMM_WORLD, code);
  std::exit(code);
}

}  // extern "C"
