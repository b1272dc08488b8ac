// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/init_fit.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "core/text/text.hpp"
#include "core/text/text_table.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

constexpr std::size_t kMaxShownDifferences = 20;

bool has_convertible_type(const checkpoints::Array& saved, const at::Tensor& live) {
  const at::ScalarType type = parallel::scalar_type_of(saved.dtype);
  return type == live.scalar_type() || (at::isFloatingType(type) && live.is_floating_point());
}

std::string form_text(DType dtype, const std::vector<std::int64_t>& shape) {
  return std::string(name_of(dtype)) + " " + shape_text(shape);
}

std::string form_of_live(const at::Tensor& live, const std::string& name) {
  return form_text(parallel::dtype_of(live, name), live.sizes().vec());
}

/// A first convolution with another kernel belongs to another stem of the same family; else the channels differ.
std::string stem_remedy(const StoredTensor& saved, const at::Tensor& live) {
  const bool has_kernels = saved.shape.size() == 4 && live.dim() == 4;
  if (!has_kernels) return "";
  if (saved.shape[2] == live.size(2)) {
    return saved.shape[0] == live.size(0) ? "other input channels: set init.adapt_channels=true" : "";
  }
  const std::string stem = saved.shape[2] == 7 ? "imagenet" : saved.shape[2] == 3 ? "small" : "";
  return stem.empty() ? "" : "weights of another stem: set model.stem=" + stem;
}

std::string remedy_of(const std::string& name, const StoredTensor& saved, const at::Tensor& live,
                      const models::Anatomy& anatomy) {
  if (!has_convertible_type(*saved.array, live)) return "another kind of numbers, which is not converted";
  if (name == anatomy.stem + ".weight") return stem_remedy(saved, live);
  if (is_below(name, anatomy.head)) return "another number of classes: set init.head=reset";
  if (name == anatomy.positions) return "another grid of patches: set init.resize_positions=true";
  return "another size: check the keys of the model";
}

}  // namespace

bool is_below(const std::string& name, const std::string& module) {
  return !module.empty() && name.starts_with(module + ".");
}

bool is_counter(const std::string& name) { return name.ends_with("num_batches_tracked"); }

Fit fit_of(const std::string& name, const StoredTensor& saved, const at::Tensor& live, const models::Anatomy& anatomy,
           const InitSettings& settings) {
  const std::vector<std::int64_t> shape = live.sizes().vec();
  if (!has_convertible_type(*saved.array, live)) return Fit::none;
  if (saved.shape == shape) return Fit::same;
  if (saved.shape.size() != shape.size()) return Fit::none;
  if (settings.adapts_channels && name == anatomy.stem + ".weight" && shape.size() > 1) {
    std::vector<std::int64_t> adapted = saved.shape;
    adapted[1] = shape[1];
    if (adapted == shape && saved.shape[1] > 0) return Fit::channels;
  }
  const bool is_grid = settings.resizes_positions && !anatomy.positions.empty() && name == anatomy.positions;
  if (is_grid && saved.shape.size() == 3 && saved.shape[2] == shape[2] && saved.shape[0] == 1) {
    const std::int64_t cells = saved.shape[1] - anatomy.prefix_tokens;
    const auto side =
        static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(std::max<std::int64_t>(cells, 0)))));
    if (cells > 0 && side * side == cells) return Fit::positions;
  }
  return Fit::none;
}

InitDifferences differences_of(const StoredTensors& stored, const LiveTensors& live, const models::Anatomy& anatomy,
                               const InitSettings& settings) {
  InitDifferences differences;
  for (const auto& [name, live_tensor] : live) {
    const at::Tensor& tensor = live_tensor;  // clang 14 does not capture structured bindings
    const auto found = stored.find(name);
    if (settings.resets_head && is_below(name, anatomy.head)) continue;
    if (found == stored.end()) {
      // One name of a tied weight is enough.
      const bool has_other_name = std::any_of(live.begin(), live.end(), [&](const auto& other) {
        return other.second.is_same(tensor) && stored.contains(other.first);
      });
      if (has_other_name || is_counter(name)) continue;
      differences.push_back({.name = name, .in_file = "", .in_model = form_of_live(tensor, name), .remedy = ""});
      if (is_below(name, anatomy.head)) differences.back().remedy = "no head in the file: set init.head=reset";
    } else if (fit_of(name, found->second, tensor, anatomy, settings) == Fit::none) {
      differences.push_back({.name = name,
                             .in_file = form_text(found->second.array->dtype, found->second.shape),
                             .in_model = form_of_live(tensor, name),
                             .remedy = remedy_of(name, found->second, tensor, anatomy)});
    }
  }
  for (const auto& [name, saved] : stored) {
    const bool is_expected = live.contains(name) || is_counter(name);
    if (is_expected || (settings.resets_head && is_below(name, anatomy.head))) continue;
    differences.push_back(
        {.name = name, .in_file = form_text(saved.array->dtype, saved.shape), .in_model = "", .remedy = ""});
  }
  if (settings.section != "init") {  // the model cannot change to fit the file
    for (InitDifference& difference : differences) {
      difference.remedy = is_below(difference.name, anatomy.head) ? "another number of classes than the data"
                                                                  : "set distill.model to the model of the file";
    }
  }
  return differences;
}

std::string table_of(const InitDifferences& differences) {
  TextTable table({Align::left});
  table.add({"", "tensor", "in the file", "in the model", "what to do"});
  for (std::size_t i = 0; i < std::min(kMaxShownDifferences, differences.size()); ++i) {
    const InitDifference& difference = differences[i];
    const bool is_elsewhere = difference.in_file.empty() || difference.in_model.empty();
    const std::string usual = is_elsewhere ? "rename it (init.rename), or leave it out (init.partial)" : "";
    table.add({"", difference.name, difference.in_file.empty() ? "missing" : difference.in_file,
               difference.in_model.empty() ? "missing" : difference.in_model,
               difference.remedy.empty() ? usual : difference.remedy});
  }
  std::string text = "\n" + table.text();
  text.pop_back();
  if (differences.size() > kMaxShownDifferences) {
    text += "\n  and " + std::to_string(differences.size() - kMaxShownDifferences) + " more";
  }
  return text;
}

}  // namespace lockstep::engine
