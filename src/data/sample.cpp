// SPDX-License-Identifier: BSD-3-Clause
#include "data/sample.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <set>
#include <utility>

#include "data/hash.hpp"

namespace lockstep::data {

namespace {

constexpr const char* kValid = "data_valid";

std::string quoted(const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys) text += (text.empty() ? "'" : ", '") + key + "'";
  return text;
}

bool contains(const std::vector<std::string>& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

void require_keys(const std::vector<std::string>& keys, const std::string& kind) {
  if (keys.empty() || contains(keys, "")) throw ConfigError("a sample needs at least one " + kind + " key");
  const std::set<std::string> unique(keys.begin(), keys.end());
  if (unique.size() == keys.size()) return;
  throw ConfigError("the " + kind + " keys " + quoted(keys) + " name one twice");
}

std::vector<std::string> keys_of(const ValueMap& batch) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : batch) keys.push_back(key);
  return keys;
}

void require_enough(const ValueMap& batch, const SampleKeys& keys) {
  if (keys.inputs.size() + keys.targets.size() <= batch.size()) return;
  throw DataError("a sample of inputs " + quoted(keys.inputs) + " and targets " + quoted(keys.targets) +
                  " needs a batch of " + std::to_string(keys.inputs.size() + keys.targets.size()) +
                  " keys or more, but this one has " + (batch.empty() ? "none" : "only " + quoted(keys_of(batch))));
}

const Value& only_element(const ValueMap& batch, const std::string& key) {
  const auto found = batch.find(key);
  if (found == batch.end()) throw DataError("the batch has no '" + key + "', only " + quoted(keys_of(batch)));
  if (!found->second.is<ValueList>()) {
    throw DataError("'" + key + "' of the batch is " + kind_of(found->second) + ", not a list");
  }
  const auto& list = found->second.as<ValueList>();
  if (list.size() == 1) return list.front();
  throw DataError("'" + key + "' of the batch is a list of " + std::to_string(list.size()) +
                  " elements, not of one; data of several kinds need a train step of their own");
}

Value part_of(const ValueMap& batch, const std::vector<std::string>& keys) {
  if (keys.size() == 1) return only_element(batch, keys.front());
  ValueMap parts;
  for (const std::string& key : keys) parts[key] = only_element(batch, key);
  return parts;
}

/// Of the first sample.
void require_parts(const ValueMap& parts, const SampleKeys& keys) {
  for (const auto* names : {&keys.inputs, &keys.targets}) {
    for (const std::string& name : *names) {
      if (!parts.contains(name)) throw ConfigError("samples have no '" + name + "', only " + quoted(keys_of(parts)));
    }
  }
}

class KeyedDataset : public Dataset {
 public:
  KeyedDataset(std::shared_ptr<const Dataset> dataset, SampleKeys keys)
      : dataset_(std::move(dataset)), keys_(std::move(keys)) {}

  std::int64_t size() const override { return dataset_->size(); }
  Task task() const override { return dataset_->task(); }
  std::vector<double> aspect_ratios() const override { return dataset_->aspect_ratios(); }
  std::uint64_t digest() const override {
    std::vector<std::string> names = keys_.inputs;
    names.push_back(keys_.targets.front());
    const std::string text = quoted(names);
    return hash_of({dataset_->digest(), hash_of({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()})});
  }

  Batch get(std::span<const std::int64_t> indices) const override {
    const ValueMap parts = keyed_batch(dataset_->get(indices));
    const auto part = [&parts](const std::string& key) { return only_element(parts, key).as<at::Tensor>(); };
    const std::string& target = keys_.targets.front();
    Batch batch{.input = part(keys_.inputs.front()), .target = part(target)};
    for (std::size_t i = 1; i < keys_.inputs.size(); ++i) batch.more[keys_.inputs[i]] = part(keys_.inputs[i]);
    for (const auto& [key, value] : parts) {
      if (key != keys_.inputs.front() && key != target) batch.more[key] = part(key);
    }
    return batch;
  }

 private:
  std::shared_ptr<const Dataset> dataset_;
  SampleKeys keys_;
};

}  // namespace

std::shared_ptr<const Dataset> keyed(std::shared_ptr<const Dataset> dataset, const SampleKeys& keys) {
  require_keys(keys.inputs, "input");
  require_keys(keys.targets, "target");
  if (keys.targets.size() > 1) {
    throw ConfigError("samples have one target, not " + quoted(keys.targets) + ": the others are beside it by name");
  }
  if (!dataset || keys == SampleKeys()) return dataset;
  if (dataset->size() > 0) require_parts(keyed_batch(dataset->get(std::vector<std::int64_t>{0})), keys);
  return std::make_shared<KeyedDataset>(std::move(dataset), keys);
}

ValueMap keyed_batch(const Batch& batch) {
  ValueMap keyed{{"data", ValueList{batch.input}}};
  if (batch.target.defined()) keyed["label"] = ValueList{batch.target};
  for (const auto& [key, tensor] : batch.more) keyed[key] = ValueList{tensor};
  return keyed;
}

ValueMap construct_sample(const ValueMap& batch, const SampleKeys& keys) {
  require_keys(keys.inputs, "input");
  require_keys(keys.targets, "target");
  require_enough(batch, keys);
  ValueMap sample{{"input", part_of(batch, keys.inputs)}, {"target", part_of(batch, keys.targets)}};
  if (batch.contains(kValid)) sample[kValid] = only_element(batch, kValid);
  for (const auto& [key, value] : batch) {
    if (!contains(keys.inputs, key) && !contains(keys.targets, key)) sample.try_emplace(key, value);
  }
  return sample;
}

const at::Tensor& tensor_of(const ValueMap& sample, const std::string& key) {
  const auto found = sample.find(key);
  if (found == sample.end()) throw DataError("the sample has no '" + key + "'");
  if (found->second.is<at::Tensor>()) return found->second.as<at::Tensor>();
  throw DataError("the sample's '" + key + "' is " + kind_of(found->second) +
                  ", not a tensor: write a train step of your own for it");
}

}  // namespace lockstep::data
