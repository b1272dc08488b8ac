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

#include "core/text/text.hpp"
#include "engine/state/device_copies.hpp"
#include "engine/state/paths.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

constexpr std::size_t kMaxShown = 8;

std::string describe(DType dtype, const std::vector<std::int64_t>& shape) {
  return std::string(name_of(dtype)) + " " + shape_text(shape);
}

/// The same name with a longer or shorter prefix, else one with a similar spelling, else "".
std::string similar(const std::string& name, const std::vector<std::string>& others) {
  const auto found = std::find_if(others.begin(), others.end(), [&name](const std::string& other) {
    return other.ends_with("." + name) || name.ends_with("." + other);
  });
  return found != others.end() ? *found : nearest_name(name, others);
}

using checkpoints::Archive;
using SaveValues = std::function<void(Archive&, const std::string&)>;
using LoadValues = std::function<void(const Archive&, const std::string&)>;

class ValuesState : public Stateful {
 public:
  ValuesState(std::string name, SaveValues save, LoadValues load)
      : name_(std::move(name)), save_(std::move(save)), load_(std::move(load)) {}

  std::string name() const override { return "hooks/" + name_; }
  bool is_restored(const RestoreOptions& options) const override { return !options.is_partial; }

  void capture(const StateWriter& writer) override {
    if (writer.is_writer()) save_(writer.archive(), path(kHooks, name_));
  }

  void restore(const Archive& archive, const RestoreOptions&) override {
    const std::vector<std::string> stored = archive.groups_in(kHooks);
    const bool is_stored = std::find(stored.begin(), stored.end(), checkpoints::encode_name(name_)) != stored.end();
    if (is_stored) load_(archive, path(kHooks, name_));
  }

 private:
  std::string name_;
  SaveValues save_;
  LoadValues load_;
};

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
    settings += (settings.empty() ? ", or accept a lower reproducibility with " : ", ") + setting_of(remedy);
  }
  throw CheckpointError(archive_->origin(), "does not fit this run: " + text +
                                                "; resume with the configuration that is stored in it" + settings +
                                                " (see `trainer --help=resume`)")
      .as(CheckpointFault::incompatible);
}

std::string Reproducibility::text() const {
  if (level == Degree::bitwise) return "bitwise";
  return (level == Degree::order ? "order, because " : "statistical, because ") + reason;
}

Reproducibility worst_of(const std::vector<Reproducibility>& all) {
  Reproducibility worst;
  for (const Reproducibility& each : all) {
    if (each.level > worst.level) worst = each;
  }
  return worst;
}

checkpoints::Array array_of(const at::Tensor& tensor, const std::string& what) {
  const auto values = std::make_shared<at::Tensor>(tensor.detach().cpu().contiguous());
  return {.dtype = parallel::dtype_of(*values, what),
          .shape = values->sizes().vec(),
          .bytes = parallel::bytes_of(*values),
          .owner = values};
}

void StateWriter::put(const std::string& path, const at::Tensor& tensor) const {
  if (!is_writer_) return;
  const bool is_queued = copies_ != nullptr && !tensor.is_cpu();
  archive_->put(path, is_queued ? copies_->queue(tensor, path) : array_of(tensor, path));
}

at::Tensor tensor_over(const checkpoints::Array& array) {
  return at::from_blob(const_cast<std::byte*>(array.bytes.data()), array.shape,
                       at::TensorOptions().dtype(parallel::scalar_type_of(array.dtype)));
}

std::shared_ptr<Stateful> hook_state(const std::string& name, SaveValues save, LoadValues load) {
  return std::make_shared<ValuesState>(name, std::move(save), std::move(load));
}

}  // namespace lockstep::engine
