// SPDX-License-Identifier: BSD-3-Clause
// An INI file; what was read is written and read back the same.
#include <lockstep/core/error.hpp>

#include <cstdint>
#include <cstdlib>

#include "config/config.hpp"

using namespace lockstep;

namespace {

const KeySpecs kSpecs = {
    {.name = "resume", .type = KeyType::text, .default_value = "none", .help = ""},
    {.name = "optim.lr", .type = KeyType::real, .default_value = "0.1", .help = "", .min = 0},
    {.name = "optim.kind", .type = KeyType::choice, .default_value = "sgd", .help = "", .choices = {"sgd", "adam"}},
    {.name = "train.steps", .type = KeyType::integer, .default_value = "10", .help = "", .min = 0, .max = 1e6},
    {.name = "train.fast", .type = KeyType::boolean, .default_value = "true", .help = ""},
    {.name = "train.at", .type = KeyType::integers, .default_value = "1,2", .help = ""},
    {.name = "train.rates", .type = KeyType::reals, .default_value = "0.5", .help = ""},
    {.name = "train.rule", .type = KeyType::texts, .default_value = "", .help = ""},
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  config::Config config(kSpecs);
  try {
    config.read_ini(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
  } catch (const ConfigError&) {
    return 0;
  }
  const std::string text = config.to_ini();
  config::Config again(kSpecs);
  again.read_ini(text, "again");
  for (const KeySpec& spec : kSpecs) {
    if (again.value(spec.name).texts != config.value(spec.name).texts) std::abort();
  }
  return 0;
}
