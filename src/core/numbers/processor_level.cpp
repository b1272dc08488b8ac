// SPDX-License-Identifier: BSD-3-Clause
#include "core/numbers/processor_level.hpp"

#include <lockstep/core/error.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lockstep {

namespace {

/// The setting that limits a library to a level: a variable and its value.
struct LibraryLimit {
  const char* variable;
  const char* value;
};

constexpr std::array<std::string_view, 3> kVendorNames = {"amd", "intel", "other"};

struct LevelRow {
  ProcessorLevel level;
  std::string_view name;
  std::array<LibraryLimit, 4> limits;  ///< up to the first without a variable
};

constexpr std::array<LevelRow, 4> kLevelRows = {{
    {ProcessorLevel::generic,
     "generic",
     {{{"ATEN_CPU_CAPABILITY", "default"},
       {"ONEDNN_MAX_CPU_ISA", "SSE41"},
       {"MKL_ENABLE_INSTRUCTIONS", "SSE4_2"},
       {"MKL_CBWR", "COMPATIBLE"}}}},  // MKL obeys the variable before on Intel's processors only
    {ProcessorLevel::avx2,
     "avx2",
     {{{"ATEN_CPU_CAPABILITY", "avx2"}, {"ONEDNN_MAX_CPU_ISA", "AVX2"}, {"MKL_ENABLE_INSTRUCTIONS", "AVX2"}}}},
    {ProcessorLevel::avx512,
     "avx512",
     {{{"ATEN_CPU_CAPABILITY", "avx512"},
       {"ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16"},
       {"MKL_ENABLE_INSTRUCTIONS", "AVX512"}}}},
    {ProcessorLevel::amx, "amx", {}},
}};

#if defined(__x86_64__)

struct CpuidRegisters {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidRegisters cpuid(unsigned leaf, unsigned subleaf = 0) {
  CpuidRegisters registers;
  __get_cpuid_count(leaf, subleaf, &registers.eax, &registers.ebx, &registers.ecx, &registers.edx);
  return registers;
}

bool has_bits(std::uint64_t bits, std::uint64_t wanted) { return (bits & wanted) == wanted; }

/// The registers that the operating system saves: a bit for each kind (XCR0).
std::uint64_t saved_registers() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<std::uint64_t>(high) << 32 | low;
}

ProcessorLevel find_machine_level() {
  constexpr std::uint64_t kSavesAvx = 0x6;
  constexpr std::uint64_t kSavesAvx512 = 0xE6;
  constexpr std::uint64_t kSavesTiles = 0x60000;
  constexpr unsigned kAvxEcx = bit_AVX | bit_FMA | bit_F16C | bit_MOVBE | bit_OSXSAVE;
  constexpr unsigned kAvx2Ebx = bit_AVX2 | bit_BMI | bit_BMI2;
  constexpr unsigned kAvx512Ebx = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
  constexpr unsigned kTilesEdx = 1U << 22 | 1U << 24;  // AMX-BF16 and AMX-TILE
  constexpr unsigned kCountsZeros = 1U << 5;           // LZCNT
  if (!has_bits(cpuid(1).ecx, kAvxEcx) || !has_bits(cpuid(0x80000001).ecx, kCountsZeros)) {
    return ProcessorLevel::generic;
  }
  const std::uint64_t saved = saved_registers();
  const CpuidRegisters extended = cpuid(7);
  if (!has_bits(saved, kSavesAvx) || !has_bits(extended.ebx, kAvx2Ebx)) return ProcessorLevel::generic;
  if (!has_bits(saved, kSavesAvx512) || !has_bits(extended.ebx, kAvx512Ebx)) return ProcessorLevel::avx2;
  if (!has_bits(saved, kSavesTiles) || !has_bits(extended.edx, kTilesEdx)) return ProcessorLevel::avx512;
  return ProcessorLevel::amx;
}

ProcessorVendor find_vendor() {
  const CpuidRegisters registers = cpuid(0);
  if (registers.ebx == signature_AMD_ebx && registers.ecx == signature_AMD_ecx) return ProcessorVendor::amd;
  if (registers.ebx == signature_INTEL_ebx && registers.ecx == signature_INTEL_ecx) return ProcessorVendor::intel;
  return ProcessorVendor::other;
}

#else

ProcessorLevel find_machine_level() { return ProcessorLevel::generic; }
ProcessorVendor find_vendor() { return ProcessorVendor::other; }

#endif

/// LOCKSTEP_CPU; empty if it is not set.
std::string wanted_name() {
  const char* const name = std::getenv("LOCKSTEP_CPU");
  return name != nullptr ? name : "";
}

/// The row that LOCKSTEP_CPU names, if this machine has it.
const LevelRow* wanted_row() {
  const std::string name = wanted_name();
  for (const LevelRow& row : kLevelRows) {
    if (row.name == name && row.level <= machine_level()) return &row;
  }
  return nullptr;
}

std::atomic<ProcessorLevel>& level_in_use() {
  static std::atomic<ProcessorLevel> level = wanted_row() != nullptr ? wanted_row()->level : machine_level();
  return level;
}

/// Runs before main, when there is one thread and no library has read its variable.
const bool kIsLimited = [] {
  const LevelRow* const row = wanted_row();
  if (row == nullptr) return false;
  for (const LibraryLimit& limit : row->limits) {
    if (limit.variable != nullptr) setenv(limit.variable, limit.value, /*overwrite=*/0);
  }
  return true;
}();

}  // namespace

std::string_view name_of(ProcessorLevel level) { return kLevelRows[static_cast<std::size_t>(level)].name; }

std::string_view name_of(ProcessorVendor vendor) { return kVendorNames[static_cast<std::size_t>(vendor)]; }

ProcessorVendor processor_vendor() {
  static const ProcessorVendor vendor = find_vendor();
  return vendor;
}

ProcessorLevel machine_level() {
  static const ProcessorLevel level = find_machine_level();
  return level;
}

ProcessorLevel processor_level() { return level_in_use().load(std::memory_order_relaxed); }

std::vector<ProcessorLevel> machine_levels() {
  std::vector<ProcessorLevel> levels;
  for (const LevelRow& row : kLevelRows) {
    if (row.level <= machine_level()) levels.push_back(row.level);
  }
  return levels;
}

std::vector<std::pair<std::string, std::string>> library_limits() {
  std::vector<std::pair<std::string, std::string>> limits;
  const LevelRow* const row = wanted_row();
  if (row == nullptr) return limits;
  for (const LibraryLimit& limit : row->limits) {
    const char* const value = limit.variable != nullptr ? std::getenv(limit.variable) : nullptr;
    if (value != nullptr) limits.emplace_back(limit.variable, value);
  }
  return limits;
}

void require_usable_level() {
  const std::string name = wanted_name();
  if (name.empty() || kIsLimited) return;
  std::string known;
  bool is_known = false;
  for (const LevelRow& row : kLevelRows) {
    is_known = is_known || row.name == name;
    if (row.level <= machine_level()) known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw ConfigError("LOCKSTEP_CPU=" + name + (is_known ? ": this machine does not have this level" : " is unknown") +
                    ". Choose one of: " + known + "; or unset it");
}

ScopedLevel::ScopedLevel(ProcessorLevel level) : before_(level_in_use().exchange(level)) {}

ScopedLevel::~ScopedLevel() { level_in_use() = before_; }

}  // namespace lockstep
