// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/lockstep.h>
#include <lockstep/log/log.hpp>
#include <lockstep/session.hpp>

#include <algorithm>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/system/memory.hpp"
#include "core/system/process.hpp"
#include "core/text/text.hpp"
#include "embed/c_arrays.hpp"
#include "embed/settings.hpp"

struct lockstep_run {
  lockstep::Session session;
  std::string sentence = {};
  std::vector<std::string> names = {};  // parameters and buffers, once a name was requested
};

namespace {

using lockstep::embed::tensors_of;

thread_local std::string last_sentence;

/// The code of what is thrown, and its sentence.
int code_of(const std::exception& failure, std::string& sentence) {
  if (lockstep::is_out_of_memory(failure)) {
    sentence = lockstep::out_of_memory_error(failure).what();
    return LOCKSTEP_MEMORY;
  }
  sentence = lockstep::message_of(failure);
  const auto* const error = dynamic_cast<const lockstep::Error*>(&failure);
  return error == nullptr ? LOCKSTEP_INTERNAL : static_cast<int>(error->exit_code());
}

/// Runs a function of the interface: nothing is thrown out of it.
template <class Work>
int guarded(std::string* of_run, const Work& work) noexcept {
  try {
    try {
      work();
      return LOCKSTEP_DONE;
    } catch (const std::exception& failure) {
      const int code = code_of(failure, last_sentence);
      if (of_run != nullptr) *of_run = last_sentence;
      return code;
    }
  } catch (...) {  // not even the sentence could be made
    return LOCKSTEP_INTERNAL;
  }
}

/// The same with a run.
template <class Work>
int with_run(lockstep_run* run, const Work& work) noexcept {
  return guarded(run == nullptr ? nullptr : &run->sentence, [&] {
    if (run == nullptr) throw lockstep::ConfigError("the run is NULL: it was not opened, or is closed");
    work(run->session);
  });
}

std::span<const lockstep_array> span_of(const lockstep_array* arrays, int count) {
  if (count < 0 || (count > 0 && arrays == nullptr)) {
    throw lockstep::DataError("the number of arrays is " + std::to_string(count) +
                              (count < 0 ? ", which is negative" : ", but their address is NULL"));
  }
  return {arrays, static_cast<std::size_t>(count)};
}

lockstep_array described(const char* name, int type, int rank, void* data) {
  lockstep_array array = {};
  array.name = name;
  array.type = type;
  array.rank = rank;
  array.data = data;
  return array;
}

int64_t element_bytes(int type) {
  switch (type) {
    case LOCKSTEP_FLOAT64:
    case LOCKSTEP_INT64:
      return 8;
    case LOCKSTEP_FLOAT32:
    case LOCKSTEP_INT32:
      return 4;
    case LOCKSTEP_FLOAT16:
    case LOCKSTEP_BFLOAT16:
      return 2;
    default:
      return 1;
  }
}

/// Fills in sizes and strides; wrong ranks are found when the array is used.
void lay_out(lockstep_array& array, const int64_t* sizes, bool is_reversed) {
  const int rank = std::clamp(array.rank, 0, LOCKSTEP_MAX_RANK);
  int64_t stride = element_bytes(array.type);
  for (int i = 0; i < rank; ++i) {
    const int64_t size = is_reversed ? sizes[i] : sizes[rank - 1 - i];
    array.sizes[rank - 1 - i] = size;
    array.strides[rank - 1 - i] = stride;
    stride *= size;
  }
}

}  // namespace

extern "C" {

lockstep_array lockstep_array_c(const char* name, int type, int rank, const int64_t* sizes, void* data) {
  lockstep_array array = described(name, type, rank, data);
  lay_out(array, sizes, /*is_reversed=*/false);
  return array;
}

lockstep_array lockstep_array_f(const char* name, int type, int rank, const int64_t* sizes, void* data) {
  lockstep_array array = described(name, type, rank, data);
  lay_out(array, sizes, /*is_reversed=*/true);
  return array;
}

int lockstep_open(const char* const* settings, int count, int communicator, lockstep_run** run) {
  return guarded(nullptr, [&] {
    if (run == nullptr) throw lockstep::ConfigError("the address that receives the run is NULL");
    *run = nullptr;
    if (count < 0 || (count > 0 && settings == nullptr)) throw lockstep::ConfigError("there are no settings");
    std::vector<std::string> texts;
    for (int i = 0; i < count; ++i) {
      if (settings[i] == nullptr) throw lockstep::ConfigError("setting number " + std::to_string(i) + " is NULL");
      texts.emplace_back(settings[i]);
    }
    MPI_Comm comm = MPI_COMM_NULL;
    if (communicator != LOCKSTEP_ALONE) {
      lockstep::embed::require_mpi();
      comm = MPI_Comm_f2c(communicator);
      if (comm == MPI_COMM_NULL) throw lockstep::ConfigError("the communicator is MPI_COMM_NULL; use LOCKSTEP_ALONE");
    }
    *run = new lockstep_run{.session{comm, texts}};
  });
}

int lockstep_close(lockstep_run** run) {
  return guarded(nullptr, [&] {
    if (run == nullptr || *run == nullptr) return;
    const std::unique_ptr<lockstep_run> closed(*run);
    *run = nullptr;
    closed->session.close();
  });
}

int lockstep_train(lockstep_run* run, const lockstep_array* arrays, int count, double* loss) {
  return with_run(run, [&](lockstep::Session& session) {
    const double mean = session.train([&] { return tensors_of(span_of(arrays, count), session.gpu()); });
    if (loss != nullptr) *loss = mean;
  });
}

int lockstep_predict(lockstep_run* run, const lockstep_array* inputs, int input_count, lockstep_array* outputs,
                     int output_count) {
  return with_run(run, [&](lockstep::Session& session) {
    const std::span<const lockstep_array> wanted = span_of(outputs, output_count);
    const lockstep::SampleTensors targets = tensors_of(wanted, session.gpu());
    session.predict_into(tensors_of(span_of(inputs, input_count), session.gpu()), targets);
    for (std::size_t i = 0; i < wanted.size(); ++i) lockstep::embed::write_back(wanted[i], targets[i].second);
  });
}

int lockstep_push(lockstep_run* run, const lockstep_array* arrays, int count) {
  return with_run(run,
                  [&](lockstep::Session& session) { session.push(tensors_of(span_of(arrays, count), session.gpu())); });
}

int lockstep_push_lane(lockstep_run* run, int64_t lane, const lockstep_array* arrays, int count) {
  return with_run(
      run, [&](lockstep::Session& session) { session.push(tensors_of(span_of(arrays, count), session.gpu()), lane); });
}

int lockstep_lanes(const lockstep_run* run, int64_t* first, int64_t* count) {
  if (run == nullptr || first == nullptr || count == nullptr) return LOCKSTEP_CONFIGURATION;
  const auto [begin, lanes] = run->session.lanes();
  *first = begin;
  *count = lanes;
  return LOCKSTEP_DONE;
}

int64_t lockstep_buffer_size(const lockstep_run* run) { return run == nullptr ? -1 : run->session.buffer_size(); }

int lockstep_train_buffer(lockstep_run* run, int64_t steps, double* loss) {
  return with_run(run, [&](lockstep::Session& session) {
    const double mean = session.train_buffer(steps);
    if (loss != nullptr) *loss = mean;
  });
}

int lockstep_update(lockstep_run* run) {
  return with_run(run, [](lockstep::Session& session) { session.update(); });
}

int64_t lockstep_weights_step(const lockstep_run* run) { return run == nullptr ? -1 : run->session.weights_step(); }

int64_t lockstep_producers(const lockstep_run* run) { return run == nullptr ? 0 : run->session.open_producers(); }

int64_t lockstep_dropped(const lockstep_run* run) { return run == nullptr ? 0 : run->session.dropped(); }

int lockstep_save(lockstep_run* run) {
  return with_run(run, [](lockstep::Session& session) { session.save(); });
}

int lockstep_resume(lockstep_run* run, const char* from) {
  return with_run(run, [&](lockstep::Session& session) { session.resume(from == nullptr ? "must" : from); });
}

int lockstep_metric(lockstep_run* run, const char* name, double value) {
  return with_run(run, [&](lockstep::Session& session) {
    if (name == nullptr) throw lockstep::ConfigError("the name of a metric is NULL");
    session.metric(name, value);
  });
}

int lockstep_log(lockstep_run* run, const char* text) {
  return with_run(run, [&](lockstep::Session&) { lockstep::log::info(text == nullptr ? "" : text); });
}

int64_t lockstep_step(const lockstep_run* run) { return run == nullptr ? -1 : run->session.step(); }

int64_t lockstep_parameter_count(const lockstep_run* run) {
  return run == nullptr ? -1 : run->session.parameter_count();
}

const char* lockstep_parameter_name(lockstep_run* run, int64_t index) {
  const char* name = nullptr;
  with_run(run, [&](lockstep::Session& session) {
    if (run->names.empty()) run->names = session.parameter_names();
    if (index >= 0 && index < std::ssize(run->names)) name = run->names[static_cast<std::size_t>(index)].c_str();
  });
  return name;
}

int lockstep_get_parameter(lockstep_run* run, lockstep_array* values) {
  return with_run(run, [&](lockstep::Session& session) {
    if (values == nullptr || values->name == nullptr) throw lockstep::ConfigError("the parameter has no name");
    const at::Tensor target = lockstep::embed::tensor_of(*values, session.gpu());
    session.read_parameter(values->name, target);
    lockstep::embed::write_back(*values, target);
  });
}

int lockstep_set_parameter(lockstep_run* run, const lockstep_array* values) {
  return with_run(run, [&](lockstep::Session& session) {
    const bool is_named = values != nullptr && values->name != nullptr;
    session.set_parameter(is_named ? values->name : "",
                          [&] { return is_named ? lockstep::embed::tensor_of(*values, session.gpu()) : at::Tensor(); });
  });
}

int lockstep_set_stream(lockstep_run* run, void* stream) {
  return with_run(run, [&](lockstep::Session& session) { session.set_stream(stream); });
}

int lockstep_gradient_norm(const lockstep_run* run, double* norm) {
  if (run == nullptr || norm == nullptr) return LOCKSTEP_CONFIGURATION;
  *norm = run->session.gradient_norm().value_or(std::numeric_limits<double>::quiet_NaN());
  return LOCKSTEP_DONE;
}

const char* lockstep_error(const lockstep_run* run) {
  return run == nullptr ? last_sentence.c_str() : run->sentence.c_str();
}

const char* lockstep_version(void) { return lockstep::version().c_str(); }

}  // extern "C"
