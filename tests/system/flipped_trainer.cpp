// SPDX-License-Identifier: BSD-3-Clause
// The trainer with one fault: in the third step, rank 0 flips one bit of one gradient element before sgd or adamw uses
// it. `tools/same_bits --self-test` must notice the difference.
#include <lockstep/engine/registry.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/trainer/trainer.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <variant>
#include <vector>

namespace {

namespace optim = lockstep::optim;

constexpr std::int64_t kStep = 3;
constexpr std::uint32_t kBit =
    1U << 12U;  // one of the mantissa's 23 bits: the change survives the rounding of the update

bool is_first_rank() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr || std::string_view(rank) == "0";
}

/// A rule consists of plain function pointers, so each replaced rule needs static members of its own.
template <int kRow>
struct Fault {
  static inline optim::ElementRule original;
  static inline std::int64_t current_step = 0;
  static inline bool is_done = false;

  static optim::Coefficients coefficients(const optim::Options& options, std::int64_t step) {
    current_step = step;
    return original.coefficients(options, step);
  }

  static void update(const optim::Coefficients& coefficients, const optim::ElementRange<float>& range) {
    std::vector<float> gradient(range.gradient, range.gradient + range.count);
    const auto largest =
        std::max_element(gradient.begin(), gradient.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
    if (!is_done && current_step == kStep && is_first_rank() && largest != gradient.end() && *largest != 0) {
      is_done = true;
      *largest = std::bit_cast<float>(std::bit_cast<std::uint32_t>(*largest) ^ kBit);
    }
    optim::ElementRange<float> changed = range;
    changed.gradient = gradient.data();
    original.update32(coefficients, changed);
  }

  static void put_into(lockstep::engine::Registry& registry, std::string_view name) {
    for (optim::Rule& rule : registry.rules) {
      if (rule.name != name) continue;
      auto& elements = std::get<optim::ElementRule>(rule.kind);
      original = elements;
      elements.coefficients = coefficients;
      elements.update32 = update;
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  lockstep::engine::Registry registry;
  Fault<0>::put_into(registry, "sgd");
  Fault<1>::put_into(registry, "adamw");
  lockstep::trainer::run(argc, argv, registry);
}
