// SPDX-License-Identifier: BSD-3-Clause
#include "differences.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/key_spec.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <torch/types.h>

#include <algorithm>

namespace lockstep::engine {

namespace {

constexpr std::size_t kShown = 8;

std::string describe(DType dtype, const std::vector<std::int64_t>& shape) {
  std::string text(name_of(dtype));
  text += " [";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

/// The same name with more in front of it or less, else one that is spelt nearly so, else "".
std::string similar(const std::string& name, const std::vector<std::string>& others) {
  const auto found = std::find_if(others.begin(), others.end(), [&name](const std::string& other) {
    return other.ends_with("." + name) || name.ends_with("." + other);
  });
  return found != others.end() ? *found : nearest_name(name, others);
}

}  // namespace

bool fits(const checkpoints::Array& saved, const Tensor& live) {
  return saved.shape == live.sizes().vec() && parallel::scalar_type_of(saved.dtype) == live.scalar_type();
}

void Differences::add(const std::string& difference, const std::string& remedy) {
  all_.push_back(difference);
  if (!remedy.empty()) remedies_.insert(remedy);
}

void Differences::expect_array(const std::string& at, const Tensor& live, const std::string& remedy,
                               const std::vector<std::string>& unused) {
  if (!archive_->has(at)) {
    const std::string near = similar(at.substr(at.rfind('/') + 1), unused);
    add(at + " is missing" + (near.empty() ? "" : " (did you mean '" + near + "', which it holds?)"), remedy);
    if (!near.empty()) remedies_.insert(kRename);
    return;
  }
  const checkpoints::Array& saved = archive_->array(at);
  if (fits(saved, live)) return;
  add(at + " is " + describe(saved.dtype, saved.shape) + ", the run has " +
          describe(parallel::dtype_of(live, at), live.sizes().vec()),
      remedy);
}

void Differences::throw_if_any() const {
  if (all_.empty()) return;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, all_.size()); ++i) text += (i == 0 ? "" : "; ") + all_[i];
  if (all_.size() > kShown) text += "; and " + std::to_string(all_.size() - kShown) + " more";
  std::string remedies;
  for (const std::string& remedy : remedies_)
    remedies += (remedies.empty() ? ", or less exactly with " : ", ") + remedy;
  throw CheckpointError(archive_->origin(), "does not fit this run: " + text +
                                                "; resume with the configuration that wrote it, which it holds" +
                                                remedies + " (see `trainer --help=resume`)")
      .as(CheckpointFault::incompatible);
}

}  // namespace lockstep::engine
