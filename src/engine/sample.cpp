// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/sample.hpp>

#include <algorithm>
#include <set>

namespace lockstep::engine {

namespace {

constexpr const char* kValid = "data_valid";

std::string quoted(const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys) text += (text.empty() ? "'" : ", '") + key + "'";
  return text;
}

void require_keys(const std::vector<std::string>& keys, const std::string& kind) {
  if (keys.empty()) throw ConfigError("a sample needs at least one " + kind + " key");
  const std::set<std::string> unique(keys.begin(), keys.end());
  if (unique.size() == keys.size()) return;
  throw ConfigError("the " + kind + " keys " + quoted(keys) + " name one twice");
}

void require_enough(const data::ValueMap& batch, const SampleKeys& keys) {
  if (keys.inputs.size() + keys.targets.size() <= batch.size()) return;
  std::vector<std::string> there;
  for (const auto& [key, value] : batch) there.push_back(key);
  throw DataError("a sample of inputs " + quoted(keys.inputs) + " and targets " + quoted(keys.targets) +
                  " needs a batch of " + std::to_string(keys.inputs.size() + keys.targets.size()) +
                  " keys or more, but this one has " + (there.empty() ? "none" : "only " + quoted(there)));
}

const data::Value& only_element(const data::ValueMap& batch, const std::string& key) {
  const auto found = batch.find(key);
  if (found == batch.end()) throw DataError("the batch has no '" + key + "'");
  if (!found->second.is<data::ValueList>()) {
    throw DataError("'" + key + "' of the batch is " + data::kind_of(found->second) + ", not a list");
  }
  const auto& list = found->second.as<data::ValueList>();
  if (list.size() == 1) return list.front();
  throw DataError("'" + key + "' of the batch is a list of " + std::to_string(list.size()) +
                  " elements, not of one; data of several kinds need a train step of their own");
}

data::Value part_of(const data::ValueMap& batch, const std::vector<std::string>& keys) {
  if (keys.size() == 1) return only_element(batch, keys.front());
  data::ValueMap parts;
  for (const std::string& key : keys) parts[key] = only_element(batch, key);
  return parts;
}

bool contains(const std::vector<std::string>& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

data::ValueMap keyed_batch(const data::Batch& batch) {
  data::ValueMap keyed{{"data", data::ValueList{batch.input}}};
  if (batch.target.defined()) keyed["label"] = data::ValueList{batch.target};
  return keyed;
}

data::ValueMap construct_sample(const data::ValueMap& batch, const SampleKeys& keys) {
  require_keys(keys.inputs, "input");
  require_keys(keys.targets, "target");
  require_enough(batch, keys);
  data::ValueMap sample{{"input", part_of(batch, keys.inputs)}, {"target", part_of(batch, keys.targets)}};
  if (batch.contains(kValid)) sample[kValid] = only_element(batch, kValid);
  for (const auto& [key, value] : batch) {
    if (!contains(keys.inputs, key) && !contains(keys.targets, key)) sample.try_emplace(key, value);
  }
  return sample;
}

const at::Tensor& tensor_of(const data::ValueMap& sample, const std::string& key) {
  const auto found = sample.find(key);
  if (found == sample.end()) throw DataError("the sample has no '" + key + "'");
  if (found->second.is<at::Tensor>()) return found->second.as<at::Tensor>();
  throw DataError("the sample's '" + key + "' is " + data::kind_of(found->second) +
                  ", not a tensor: write a train step of your own for it");
}

}  // namespace lockstep::engine
