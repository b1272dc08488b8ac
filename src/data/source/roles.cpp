// SPDX-License-Identifier: BSD-3-Clause
#include "data/source/roles.hpp"

#include <lockstep/core/error.hpp>

#include <set>
#include <utility>

#include "core/text/text.hpp"
#include "data/source/hash.hpp"

namespace lockstep::data {

namespace {

std::string quoted(const std::vector<std::string>& names) {
  std::vector<std::string> words;
  for (const std::string& name : names) words.push_back("'" + name + "'");
  return joined(words);
}

/// The chosen names, or the usual ones where none are chosen.
std::vector<std::string> chosen_names(const Cited<std::string>& chosen, std::vector<std::string> usual) {
  std::vector<std::string> names = words_in(chosen.value);
  if (names.empty()) return usual;
  const std::set<std::string> unique(names.begin(), names.end());
  if (unique.size() < names.size()) throw ConfigError(chosen.cite + ": " + quoted(names) + " names a value twice");
  return names;
}

void require_values(const batch::Batch& first, const std::vector<std::string>& names, const std::string& cite) {
  for (const std::string& name : names) {
    if (first.has(name)) continue;
    std::vector<std::string> there;
    for (const auto& [key, value] : first.values()) there.push_back(key);
    throw ConfigError(cite + ": samples do not contain '" + name + "', only " + quoted(there));
  }
}

class WithRoles : public Dataset {
 public:
  WithRoles(std::shared_ptr<const Dataset> dataset, batch::Roles roles, bool are_own)
      : dataset_(std::move(dataset)),
        roles_(std::make_shared<const batch::Roles>(std::move(roles))),
        are_own_(are_own) {}

  const Dataset& dataset() const noexcept { return *dataset_; }
  std::int64_t size() const override { return dataset_->size(); }
  Task task() const override { return dataset_->task(); }
  batch::Roles roles() const override { return *roles_; }

  batch::Batch get(std::span<const batch::Draw> draws) const override {
    batch::Batch batch = dataset_->get(draws);
    batch.set_roles(roles_);
    return batch;
  }

  std::uint64_t digest() const override {
    if (are_own_) return dataset_->digest();
    std::vector<std::string> names = roles_->inputs;
    names.insert(names.end(), roles_->targets.begin(), roles_->targets.end());
    const std::string text = quoted(names);
    return hash_of({dataset_->digest(), hash_of({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()})});
  }

 private:
  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<const batch::Roles> roles_;
  bool are_own_;  // those that the data set gives itself
};

}  // namespace

std::shared_ptr<const Dataset> with_roles(std::shared_ptr<const Dataset> dataset, const ChosenRoles& chosen) {
  if (!dataset) return dataset;
  const batch::Roles own = dataset->roles();
  batch::Roles roles{.inputs = chosen_names(chosen.inputs, own.inputs),
                     .targets = chosen_names(chosen.targets, own.targets)};
  if (roles == own && own == batch::Roles()) return dataset;
  if (roles != own && dataset->size() > 0) {
    const batch::Batch first = dataset->get(batch::draws_in_order(0, 1));
    require_values(first, roles.inputs, chosen.inputs.cite);
    require_values(first, roles.targets, chosen.targets.cite);
  }
  const bool are_own = roles == own;
  return std::make_shared<WithRoles>(std::move(dataset), std::move(roles), are_own);
}

const Dataset& without_roles(const Dataset& dataset) {
  const auto* const wrapper = dynamic_cast<const WithRoles*>(&dataset);
  return wrapper != nullptr ? wrapper->dataset() : dataset;
}

}  // namespace lockstep::data
