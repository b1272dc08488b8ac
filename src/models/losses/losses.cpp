// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/model.hpp>

#include <algorithm>
#include <optional>

namespace lockstep::models {

namespace {

at::Tensor value_of(const std::string& name, const LossTerm& term) {
  at::Tensor sum;
  for (const at::Tensor& part : term.parts) {
    if (!part.defined()) throw ConfigError("the loss of the model '" + name + "' is not a tensor");
    const at::Tensor mean = part.dim() == 0 ? part : part.mean();
    sum = sum.defined() ? sum + mean : mean;
  }
  if (!sum.defined()) throw ConfigError("the loss of the model '" + name + "' is an empty list");
  return sum;
}

bool is_trained(const std::string& name, LossSum sum) {
  if (sum == LossSum::main) return name == "loss";
  return sum == LossSum::all || name.find("loss") != std::string::npos;
}

/// The index of the weight by name; none = the usual one.
std::optional<std::size_t> own_weight(const std::string& name, const LossTerm& term, const LossWeights& weights) {
  if (weights.are_of_task && !term.is_of_task) return std::nullopt;
  for (std::size_t i = 0; i < weights.by_name.size(); ++i) {
    if (weights.by_name[i].first == name) return i;
  }
  return std::nullopt;
}

/// A loss as it enters the total: with its weight, if there are weights by name. The mean over no items is NaN; it must
/// not enter the sum, but its graph must.
at::Tensor weighted(const at::Tensor& value, std::optional<std::size_t> own, const LossWeights& weights) {
  if (weights.by_name.empty()) return value;
  if (own && !weights.live.empty()) {
    const at::Tensor& weight = weights.live.at(*own);
    return at::where(weight.ne(0), value, value.nan_to_num(0, 0, 0)) * weight.to(value.scalar_type());
  }
  const double weight = own ? weights.by_name[*own].second : weights.usual;
  return weight == 0 ? value.nan_to_num(0, 0, 0) * 0 : value * weight;
}

void require_known(const LossWeights& weights, const LossMap& losses) {
  if (weights.are_of_task) return;
  for (const auto& [name, weight] : weights.by_name) {
    const auto is_this = [&name = name](const auto& entry) { return entry.first == name; };
    if (std::none_of(losses.begin(), losses.end(), is_this)) {
      throw ConfigError("the model counts items of '" + name + "', but returned no loss with this name");
    }
  }
}

/// @throws ConfigError  two values have the same name
void require_own_names(const ParsedLosses& parsed) {
  for (auto value = parsed.values.begin(); value != parsed.values.end(); ++value) {
    const auto has_name = [value](const auto& other) { return other.first == value->first; };
    if (std::none_of(parsed.values.begin(), value, has_name)) continue;
    throw ConfigError("the model returned two losses that are logged as '" + value->first +
                      "'; choose another name for one of them");
  }
}

}  // namespace

ParsedLosses parse_losses(const LossMap& losses, LossSum sum, const LossWeights& weights) {
  require_known(weights, losses);
  ParsedLosses parsed;
  at::Tensor unweighted;  // the sum that is reported
  std::vector<std::pair<std::string, at::Tensor>> entries;
  std::size_t terms = 0;
  parsed.is_of_task = true;
  parsed.is_void = weights.count_nothing;
  for (const auto& [name, term] : losses) {
    const at::Tensor value = value_of(name, term);
    entries.emplace_back(name, value.detach());
    ++terms;
    parsed.is_of_task = parsed.is_of_task && term.is_of_task;
    for (std::size_t i = 0; i < term.names.size(); ++i) {
      const at::Tensor part = term.parts[i].detach();
      entries.emplace_back(name + "/" + term.names[i], part.dim() == 0 ? part : part.mean());
    }
    if (!is_trained(name, sum)) continue;
    const std::optional<std::size_t> own = own_weight(name, term, weights);
    parsed.is_void = parsed.is_void && own.has_value();
    const at::Tensor part = weighted(value, own, weights);
    parsed.total = parsed.total.defined() ? parsed.total + part : part;
    if (!weights.by_name.empty()) {
      unweighted = unweighted.defined() ? unweighted + value.detach() : value.detach();
    }
  }
  if (!parsed.total.defined()) {
    throw ConfigError(std::string("the model returned no entry ") +
                      (sum == LossSum::main ? "called" : "with a name that contains") + " \"loss\"");
  }
  parsed.values.emplace_back("loss", weights.by_name.empty() ? parsed.total.detach() : unweighted);
  const bool is_total = terms == 1 || sum == LossSum::main;
  for (auto& [name, value] : entries) {
    if (name != "loss") {
      parsed.values.emplace_back(std::move(name), std::move(value));
    } else if (!is_total) {
      parsed.values.emplace_back("loss_raw", std::move(value));
    }
  }
  require_own_names(parsed);
  return parsed;
}

std::vector<std::pair<std::string, double>> host_values(const ParsedLosses& losses) {
  std::vector<std::pair<std::string, double>> numbers;
  if (losses.total.device().is_cpu()) {
    for (const auto& [name, value] : losses.values) numbers.emplace_back(name, value.item<double>());
    return numbers;
  }
  std::vector<at::Tensor> values;
  for (const auto& [name, value] : losses.values) values.push_back(value.to(losses.total.device(), at::kDouble));
  const at::Tensor here = at::stack(values).cpu();
  for (std::size_t i = 0; i < values.size(); ++i) {
    numbers.emplace_back(losses.values[i].first, here[static_cast<std::int64_t>(i)].item<double>());
  }
  return numbers;
}

at::Tensor total_loss(const LossMap& losses) { return parse_losses(losses).total; }

}  // namespace lockstep::models
