// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/gpu/gpu.hpp"

#include <lockstep/core/error.hpp>

#include <dlfcn.h>

#include <atomic>

#include "core/system/memory.hpp"
#include "mpi/gpu/module_api.hpp"

namespace lockstep::mpi {

namespace {

constexpr const char* kModule = "lockstep_gpu.so";

std::atomic<std::int64_t> bucket_bytes = 0;

std::string dl_fault() {
  const char* const text = dlerror();
  return text != nullptr ? text : "unknown error";
}

/// The error of a driver in its own words, with its number.
std::string driver_error(void* library, int code) {
  const std::string number = "error " + std::to_string(code);
  const auto words_of = reinterpret_cast<int (*)(int, const char**)>(dlsym(library, "cuGetErrorString"));
  const char* words = nullptr;
  if (words_of == nullptr || words_of(code, &words) != 0 || words == nullptr) return number;
  return number + ": " + words;
}

/// @return  null, with `fault`, where the module or something that it needs is missing, or there is no GPU
const gpu::ModuleApi* open_module(std::string& fault) {
  void* const library =
      dlopen(kModule, RTLD_NOW | RTLD_LOCAL);  // stays for good: LibTorch knows its kernels from now on
  if (library == nullptr) {
    fault = dl_fault() + "; run tools/setup --cuda, then build again";
    return nullptr;
  }
  const auto open = reinterpret_cast<gpu::OpenModule>(dlsym(library, gpu::kOpenModule));
  if (open == nullptr) {
    fault = dl_fault();
    return nullptr;
  }
  gpu::Fault refusal = nullptr;
  const gpu::ModuleApi* const api = open(gpu::kApiVersion, &refusal);
  if (api == nullptr) fault = std::string(kModule) + ": " + refusal;
  return api;
}

/// @return  null, with `fault`, where this rank cannot have a GPU
std::shared_ptr<const Gpu> open_gpu(int local_rank, std::string& fault) {
  const GpuDriver driver = probe_gpu_driver();
  fault = driver.fault;
  if (driver.gpus == 0) return nullptr;
  const gpu::ModuleApi* const api = open_module(fault);
  if (api == nullptr) return nullptr;
  try {
    return std::make_shared<const Gpu>(*api, local_rank % api->device_count);
  } catch (const ConfigError& error) {
    fault = error.what();
    return nullptr;
  }
}

void note_memory(const char* description) {
  try {
    note_gpu_memory(description);
  } catch (const std::exception&) {  // the refusal is reported anyway
  }
}

/// The report of a run that ends because of it needs it.
void watch_memory(const Gpu& gpu) {
  if (gpu.api().watch_memory == nullptr) return;
  const gpu::Fault fault = gpu.api().watch_memory(note_memory);
  if (fault != nullptr) throw ConfigError("GPU " + std::to_string(gpu.index()) + " cannot be used: " + fault);
}

}  // namespace

GpuDriver probe_gpu_driver() {
  constexpr int kSuccess = 0;
  constexpr int kNoDevice = 100;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {.gpus = 0, .fault = "no GPU driver is installed (" + dl_fault() + ")"};
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  GpuDriver driver;
  int code = -1;
  if (init != nullptr && count != nullptr) code = init(0);
  if (code == kSuccess) code = count(&driver.gpus);
  if (code == kSuccess && driver.gpus > 0) return driver;  // and the library stays: CUDA comes back to it
  const std::string words = code == kSuccess ? "no device is visible to this process" : driver_error(library, code);
  dlclose(library);
  return {.gpus = 0,
          .is_broken = code != kSuccess && code != kNoDevice,
          .fault = "the GPU driver finds no GPU (" + words + ")"};
}

std::string gpu_name(int local_rank) {
  std::string fault;
  const std::shared_ptr<const Gpu> gpu = open_gpu(local_rank, fault);
  return gpu ? gpu->name() : std::string();
}

Gpu::Gpu(const gpu::ModuleApi& api, int index) : api_(&api), index_(index) {
  gpu::DeviceFacts facts;
  const gpu::Fault fault = api.use_device(index, &facts);
  if (fault != nullptr) throw ConfigError("GPU " + std::to_string(index) + " cannot be used: " + fault);
  name_ = facts.name;
  uuid_ = facts.uuid;
  bus_id_ = facts.bus_id;
  previous_ = facts.previous;
}

MemoryPlace Gpu::place_of(const void* memory) const {
  MemoryPlace place;
  const gpu::Fault fault = api_->locate(memory, &place.device, &place.is_host);
  if (fault != nullptr) throw CommError("GPU " + std::to_string(index_) + ": the place of memory: " + fault);
  return place;
}

std::int64_t Gpu::number_of_stream(void* stream) const {
  std::int64_t number = 0;
  const gpu::Fault fault = api_->external_stream(index_, stream, &number);
  if (fault != nullptr) throw CommError("GPU " + std::to_string(index_) + ": a stream: " + fault);
  return number;
}

std::int64_t bucket_bytes_on_gpu() noexcept { return bucket_bytes; }

void add_bucket_bytes_on_gpu(std::int64_t bytes) noexcept { bucket_bytes += bytes; }

DeviceChoice choose_device(const std::string& device, const Communicator& world, int local_rank) {
  if (device == "cpu") return {};
  std::string fault;
  DeviceChoice choice{.gpu = open_gpu(local_rank, fault), .remark = {}};
  if (device == "cuda") {
    world.all_or_throw([&] {
      if (!choice.gpu) throw ConfigError("run.device=cuda: " + fault + "; or use run.device=cpu");
      watch_memory(*choice.gpu);
    });
    return choice;
  }
  if (world.agree(choice.gpu != nullptr)) {
    world.all_or_throw([&] { watch_memory(*choice.gpu); });
    return choice;
  }
  // Nothing is worth a remark where no rank has a driver, or where all drivers work and find no device.
  const GpuDriver driver = probe_gpu_driver();
  const bool has_gpu = world.all_reduce(static_cast<std::uint8_t>(driver.gpus > 0), Op::max) != 0;
  const bool is_broken = world.all_reduce(static_cast<std::uint8_t>(driver.is_broken), Op::max) != 0;
  if (has_gpu || is_broken) {
    const std::vector<std::string> faults = world.all_gather(has_gpu || driver.is_broken ? fault : "");
    for (std::size_t rank = 0; rank < faults.size() && choice.remark.empty(); ++rank) {
      if (faults[rank].empty()) continue;
      choice.remark = std::string("run.device=auto selects the CPU") +
                      (has_gpu ? ", although some ranks have a GPU" : "") + ": rank " + std::to_string(rank) + ": " +
                      faults[rank];
    }
  }
  choice.gpu = nullptr;
  return choice;
}

}  // namespace lockstep::mpi
