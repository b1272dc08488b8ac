// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/doctor/gpu_facts.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "core/text/text.hpp"

namespace lockstep::trainer {

namespace {

constexpr const char* kQuery =
    "timeout -k 1 5 nvidia-smi --format=csv,noheader,nounits "
    "--query-gpu=index,driver_version,ecc.errors.uncorrected.volatile.total,remapped_rows.pending,"
    "remapped_rows.failure";
constexpr std::array kErrors = {"uncorrected ECC errors since the driver was loaded",
                                "rows of memory that a reset would remap", "rows of memory that cannot be remapped"};
constexpr std::array kErrorsOfPrograms = {13, 31, 43, 45};  // XIDs of a wrong access, and of a program that was ended

std::string output_of(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "re"), ::pclose);
  std::string output;
  std::array<char, 4096> piece{};
  while (pipe && std::fgets(piece.data(), piece.size(), pipe.get()) != nullptr) output += piece.data();
  return output;
}

/// Whether a value of nvidia-smi counts errors: "0", "No" and "[N/A]" do not.
bool is_error(const std::string& value) { return value == "Yes" || std::atoll(value.c_str()) > 0; }

}  // namespace

GpuFacts gpu_facts_in(const std::string& answer) {
  GpuFacts facts;
  for (const std::string& line : lines_in(answer)) {
    const std::vector<std::string> cells = split_list(line, ',');
    if (cells.size() != kErrors.size() + 2) {
      facts.errors.push_back("nvidia-smi says: " + line);
      return facts;
    }
    facts.driver = cells[1];
    for (std::size_t i = 0; i < kErrors.size(); ++i) {
      const std::string& value = cells[i + 2];
      if (!is_error(value)) continue;
      facts.errors.push_back("GPU " + cells[0] + " has " + (value == "Yes" ? "" : value + " ") + kErrors[i]);
    }
  }
  return facts;
}

std::string xid_errors_in(const std::string& lines) {
  std::string last;
  int count = 0;
  for (const std::string& line : lines_in(lines)) {
    const std::size_t begin = line.find("Xid");
    const std::size_t number = line.find("): ", begin);
    if (begin == std::string::npos || number == std::string::npos) continue;
    const int xid = std::atoi(line.c_str() + number + 3);
    if (std::ranges::find(kErrorsOfPrograms, xid) != kErrorsOfPrograms.end()) continue;
    last = line.substr(begin);
    ++count;
  }
  if (count == 0) return "";
  return "the kernel log has " + std::to_string(count) + (count == 1 ? " XID error: " : " XID errors, the last one: ") +
         last;
}

GpuFacts gpu_facts() {
  if (output_of("command -v nvidia-smi").empty()) return {};
  GpuFacts facts = gpu_facts_in(output_of(std::string(kQuery) + " 2>&1"));
  const std::string xid = xid_errors_in(output_of("timeout -k 1 5 dmesg 2>/dev/null | grep 'NVRM: Xid'"));
  if (!xid.empty()) facts.errors.push_back(xid);
  return facts;
}

}  // namespace lockstep::trainer
