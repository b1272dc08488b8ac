// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/models/functional.hpp>

#include <ATen/autocast_mode.h>

#include <stdexcept>
#include <string>

namespace lockstep::models {

Autocast::Autocast(c10::DeviceType device, c10::ScalarType type)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      type_before_(at::autocast::get_autocast_dtype(device)) {
  if (type != at::kHalf && type != at::kBFloat16) {
    throw std::invalid_argument("Autocast: casts are to float16 or bfloat16, not to " +
                                std::string(at::toString(type)));
  }
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, type);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  // Casts of parameters are kept while any lives: the next forward must see what an update wrote.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, type_before_);
}

}  // namespace lockstep::models
