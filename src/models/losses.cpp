// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/model.hpp>

namespace lockstep::models {

namespace {

at::Tensor value_of(const std::string& name, const LossTerm& term) {
  at::Tensor sum;
  for (const at::Tensor& part : term.parts) {
    if (!part.defined()) throw ConfigError("the model's loss '" + name + "' is not a tensor");
    const at::Tensor mean = part.dim() == 0 ? part : part.mean();
    sum = sum.defined() ? sum + mean : mean;
  }
  if (!sum.defined()) throw ConfigError("the model's loss '" + name + "' is an empty list");
  return sum;
}

bool is_trained(const std::string& name, LossSum sum) {
  if (sum == LossSum::main) return name == "loss";
  return sum == LossSum::all || name.find("loss") != std::string::npos;
}

}  // namespace

ParsedLosses parse_losses(const LossMap& losses, LossSum sum) {
  ParsedLosses parsed;
  std::vector<std::pair<std::string, at::Tensor>> entries;
  for (const auto& [name, term] : losses) {
    const at::Tensor value = value_of(name, term);
    entries.emplace_back(name, value.detach());
    if (!is_trained(name, sum)) continue;
    parsed.total = parsed.total.defined() ? parsed.total + value : value;
  }
  if (!parsed.total.defined()) {
    throw ConfigError(std::string("the model returned no entry ") +
                      (sum == LossSum::main ? "called" : "whose name contains") + " \"loss\"");
  }
  parsed.values.emplace_back("loss", parsed.total.detach());
  const bool is_total = entries.size() == 1 || sum == LossSum::main;
  for (auto& [name, value] : entries) {
    if (name != "loss") {
      parsed.values.emplace_back(std::move(name), std::move(value));
    } else if (!is_total) {
      parsed.values.emplace_back("loss_raw", std::move(value));
    }
  }
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
