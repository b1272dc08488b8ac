// SPDX-License-Identifier: BSD-3-Clause
// Functions whose callers need more than a zero: a version, a handle, a text, a count. A stub library exports those
// that LibTorch imports from it. The argument lists are those of NVIDIA's headers, as far as they are used here.
#include <array>
#include <cstddef>
#include <cstdio>
#include <unistd.h>

#include "fake_gpu/fake_gpu.hpp"

namespace {

constexpr int kSuccess = 0;
constexpr const char* kErrorText = "an error of a stub of the fake GPU";

// The releases for which LibTorch 2.11 was built.
constexpr int kCublasVersion = 130100;
constexpr std::size_t kCudnnVersion = 91900;
constexpr std::size_t kCudartVersion = 13000;
constexpr unsigned kCuptiVersion = 130000;
constexpr int kNoMoreRecords = 12;  // CUPTI_ERROR_MAX_LIMIT_REACHED

/// A handle only has to differ from null: no stub looks at it.
int make_handle(void** handle) {
  static char object = 0;
  *handle = &object;
  return kSuccess;
}

}  // namespace

extern "C" {

[[gnu::visibility("hidden")]] long fake_gpu_refuse(const char* library, const char* function) {
  std::array<char, 300> text{};
  const int length = std::snprintf(text.data(), text.size(),
                                   "fake GPU: %s of %s was called, which computes nothing here: the operator needs a "
                                   "kernel in tests/fake_gpu/kernels\n",
                                   function, library);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), static_cast<std::size_t>(length));
  _exit(lockstep::fake_gpu::kRaceExit);
}

int cublasCreate_v2(void** handle) { return make_handle(handle); }
int cublasGetPointerMode_v2(void*, int* mode) { return *mode = 0; }
int cublasGetMathMode(void*, int* mode) { return *mode = 0; }
std::size_t cublasLtGetVersion() { return kCublasVersion; }
int cublasLtMatmulDescCreate(void** handle) { return make_handle(handle); }
int cublasLtMatmulPreferenceCreate(void** handle) { return make_handle(handle); }
int cublasLtMatrixLayoutCreate(void** handle) { return make_handle(handle); }
/// LibTorch wants at least one algorithm, and then calls cublasLtMatmul, which names itself.
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void*, int* count) {
  *count = 1;
  return kSuccess;
}

std::size_t cudnnGetVersion() { return kCudnnVersion; }
std::size_t cudnnGetCudartVersion() { return kCudartVersion; }
int cudnnCreate(void** handle) { return make_handle(handle); }
const char* cudnnGetErrorString(int) { return kErrorText; }
void cudnnGetLastErrorString(char* text, std::size_t size) {
  if (size > 0) std::snprintf(text, size, "%s", kErrorText);
}

int cusparseCreate(void** handle) { return make_handle(handle); }
const char* cusparseGetErrorString(int) { return kErrorText; }

int cusolverDnCreate(void** handle) { return make_handle(handle); }

int cuptiGetVersion(unsigned* version) {
  *version = kCuptiVersion;
  return kSuccess;
}
int cuptiGetResultString(int, const char** text) {
  *text = kErrorText;
  return kSuccess;
}
int cuptiActivityGetNextRecord(void*, std::size_t, void**) { return kNoMoreRecords; }

int nvrtcVersion(int* major, int* minor) {
  *major = static_cast<int>(kCudartVersion) / 1000;
  *minor = 0;
  return kSuccess;
}
const char* nvrtcGetErrorString(int) { return kErrorText; }

}  // extern "C"
