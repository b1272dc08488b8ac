// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/engine/stateful.hpp>

#include <torch/types.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

constexpr std::size_t kMaxShown = 8;

std::string describe(DType dtype, const std::vector<std::int64_t>& shape) {
  std::string text(name_of(dtype));
  text += " [";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

/// The same name with a longer or shorter prefix, else one with a similar spelling, else "".
std::string similar(const std::string& name, const std::vector<std::string>& others) {
  const auto found = std::find_if(others.begin(), others.end(), [&name](const std::string& other) {
    return other.ends_with("." + name) || name.ends_with("." + other);
  });
  return found != others.end() ? *found : nearest_name(name, others);
}

const char* word_for(Reproducibility::Degree level) {
  switch (level) {
    case Reproducibility::Degree::bitwise:
      return "bitwise";
    case Reproducibility::Degree::order:
      return "order";
    case Reproducibility::Degree::statistical:
      return "statistical";
  }
  return "";
}

}  // namespace

const std::string& setting_of(Remedy remedy) {
  static const std::map<Remedy, std::string> settings = {
      {Remedy::partial_model, "resume.partial=model"}, {Remedy::rename, "resume.rename=FROM=TO"},
      {Remedy::reset_average, "resume.reset=ema"},     {Remedy::reset_optimizer, "resume.reset=optim"},
      {Remedy::reset_generators, "resume.reset=rng"},  {Remedy::reset_sampler, "resume.reset=sampler"},
  };
  return settings.at(remedy);
}

bool fits(const checkpoints::Array& saved, const Tensor& live) {
  return saved.shape == live.sizes().vec() && parallel::scalar_type_of(saved.dtype) == live.scalar_type();
}

void CompatibilityReport::add(Mismatch mismatch) {
  const auto place = std::upper_bound(mismatches_.begin(), mismatches_.end(), mismatch.kind,
                                      [](MismatchKind kind, const Mismatch& other) { return kind < other.kind; });
  mismatches_.insert(place, std::move(mismatch));
}

void CompatibilityReport::expect_array(MismatchKind kind, const std::string& path, const Tensor& live,
                                       const std::vector<Remedy>& remedies, const std::vector<std::string>& unused) {
  if (!archive_->has(path)) {
    Mismatch missing{.kind = kind, .text = path + " is missing", .remedies = remedies};
    const std::string near = similar(path.substr(path.rfind('/') + 1), unused);
    if (!near.empty()) {
      missing.text += " (did you mean '" + near + "', which exists?)";
      missing.remedies.push_back(Remedy::rename);
    }
    return add(std::move(missing));
  }
  const checkpoints::Array& saved = archive_->array(path);
  if (fits(saved, live)) return;
  add({.kind = kind,
       .text = path + " is " + describe(saved.dtype, saved.shape) + ", the run has " +
               describe(parallel::dtype_of(live, path), live.sizes().vec()),
       .remedies = remedies});
}

std::vector<std::string> CompatibilityReport::accept(MismatchKind kind) {
  std::vector<std::string> texts;
  std::erase_if(mismatches_, [&](const Mismatch& mismatch) {
    if (mismatch.kind == kind) texts.push_back(mismatch.text);
    return mismatch.kind == kind;
  });
  return texts;
}

void CompatibilityReport::throw_if_any(MismatchKind kind) const {
  std::vector<Mismatch> of_kind;
  std::copy_if(mismatches_.begin(), mismatches_.end(), std::back_inserter(of_kind),
               [kind](const Mismatch& mismatch) { return mismatch.kind == kind; });
  if (!of_kind.empty()) refuse(of_kind);
}

void CompatibilityReport::throw_if_any() const {
  if (!mismatches_.empty()) refuse(mismatches_);
}

void CompatibilityReport::refuse(const std::vector<Mismatch>& mismatches) const {
  std::string text;
  for (std::size_t i = 0; i < std::min(kMaxShown, mismatches.size()); ++i) {
    text += (i == 0 ? "" : "; ") + mismatches[i].text;
  }
  if (mismatches.size() > kMaxShown) text += "; and " + std::to_string(mismatches.size() - kMaxShown) + " more";
  std::set<Remedy> remedies;
  for (const Mismatch& mismatch : mismatches) {
    remedies.insert(mismatch.remedies.begin(), mismatch.remedies.end());
  }
  std::string settings;
  for (const Remedy remedy : remedies) {
    settings += (settings.empty() ? ", or with a lower reproducibility with " : ", ") + setting_of(remedy);
  }
  throw CheckpointError(archive_->origin(), "does not fit this run: " + text +
                                                "; resume with the configuration that is stored in it" + settings +
                                                " (see `trainer --help=resume`)")
      .as(CheckpointFault::incompatible);
}

std::string Reproducibility::text() const {
  return word_for(level) + (level == Degree::bitwise ? std::string() : ", because " + reason);
}

Reproducibility worst_of(const std::vector<Reproducibility>& all) {
  Reproducibility worst;
  for (const Reproducibility& each : all) {
    if (each.level > worst.level) worst = each;
  }
  return worst;
}

}  // namespace lockstep::engine
