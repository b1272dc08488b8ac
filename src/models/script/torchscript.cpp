// SPDX-License-Identifier: BSD-3-Clause
// A module that was scripted in Python. Its parameters and buffers are registered under their names in Python, and the
// code of the archive computes the outputs.
#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <ATen/core/class_type.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "models/families/rows.hpp"
#include "models/layers/outline.hpp"
#include "models/script/script_archive.hpp"
#include "models/script/script_layers.hpp"

namespace lockstep::models {

namespace {

namespace script = torch::jit;

/// The kind of a layer by its class in Python.
LayerKind kind_of_class(const script::Module& module) {
  const auto& name = module.type()->name();
  if (!name) return LayerKind::other;
  const std::string& path = name->qualifiedName();
  static const std::vector<std::string> modules = {"modules.batchnorm.", "modules.instancenorm.",
                                                   "modules.normalization."};
  const bool is_norm = std::any_of(modules.begin(), modules.end(),
                                   [&path](const std::string& part) { return path.find(part) != std::string::npos; });
  return is_norm ? LayerKind::norm : LayerKind::other;
}

/// The place where a tensor lies. Two parameters at one place are one parameter with two names.
using Place = std::tuple<const void*, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>>;

/// Two names of one tensor can be loaded as two tensors with common memory. They become one.
void tie(const script::Module& module, std::map<Place, at::Tensor>& known) {
  const auto type = module.type();
  for (std::size_t i = 0; i < type->numAttributes(); ++i) {
    const c10::IValue value = module._ivalue()->getSlot(i);
    if (!type->is_parameter(i) || !value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor tensor = value.toTensor();
    if (tensor.numel() == 0) continue;
    const Place place(tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.sizes().vec(),
                      tensor.strides().vec());
    const auto [first, is_new] = known.emplace(place, tensor);
    if (!is_new) module._ivalue()->setSlot(i, first->second);
  }
  for (const auto& child : module.named_children()) tie(child.value, known);
}

/// The message inside a report of the interpreter, which contains the lines of the code around it.
std::string message_in(const std::string& report) {
  static const std::string mark = "RuntimeError: ";
  const std::size_t begin = report.rfind(mark);
  if (begin != std::string::npos) {
    const std::size_t from = begin + mark.size();
    return report.substr(from, report.find('\n', from) - from);
  }
  std::string text = report;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::size_t line = text.rfind('\n');
  return line == std::string::npos ? text : text.substr(line + 1);
}

void add_outputs(const std::string& name, const c10::IValue& value, batch::Outputs& outputs);

void add_tuple(const std::string& name, const c10::IValue& value, batch::Outputs& outputs) {
  const auto type = value.toTuple()->type();
  const auto& elements = value.toTupleRef().elements();
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::string usual = i == 0 ? name : name + std::to_string(i);
    add_outputs(type->schema() ? type->schema()->arguments()[i].name() : usual, elements[i], outputs);
  }
}

/// Tensors of tuples and maps are outputs with names; those of a list have one name.
void add_outputs(const std::string& name, const c10::IValue& value, batch::Outputs& outputs) {
  if (value.isNone()) return;
  if (value.isTensor()) return outputs.add(name, value.toTensor());
  if (value.isTensorList()) return outputs.add(name, value.toTensorVector());
  if (value.isTuple()) return add_tuple(name, value, outputs);
  if (value.isGenericDict()) {
    for (const auto& item : value.toGenericDict()) {
      if (!item.key().isString()) break;
      add_outputs(item.key().toStringRef(), item.value(), outputs);
    }
    if (!outputs.is_empty()) return;
  }
  throw ConfigError("model.file: forward returns a value of type " + value.type()->repr_str() +
                    "; it must return tensors, or tuples, lists or dicts of tensors");
}

class TorchScript : public Model {
 public:
  /// @param optimizes  LibTorch may specialize and fuse the code
  TorchScript(std::string path, bool optimizes) : path_(std::move(path)), optimizes_(optimizes), module_(load(path_)) {
    devices_ = devices_in(module_);
    for (const ScriptTensor& own : own_parameters(module_)) {
      register_parameter(own.name, own.tensor, own.tensor.requires_grad());
    }
    for (const ScriptTensor& own : own_buffers(module_)) register_buffer(own.name, own.tensor);
    for (const auto& child : module_.named_children()) {
      register_module(child.name, std::make_shared<ScriptPart>(child.value));
    }
    if (has_fixed_mode(module_)) {
      log::warning("model.file: '" + path_ +
                   "' calls batch norm or dropout in the mode in which it was traced. Training and evaluation compute "
                   "the same; use torch.jit.script instead of torch.jit.trace if they must differ");
    }
  }

  void train(bool is_training) override {
    Model::train(is_training);
    if (module_.hasattr("training")) module_.setattr("training", is_training);
  }

  at::Tensor forward(const at::Tensor& input) override { return outputs_for({input}).main(); }

  Tensors forward_tensors(const Tensors& inputs) override {
    Tensors outputs;
    const batch::Outputs named = outputs_for({inputs.begin(), inputs.end()});
    for (const auto& entry : named.entries()) outputs.push_back(entry.second);
    return outputs;
  }

  batch::Outputs forward_batch(const batch::Batch& batch) override { return outputs_for(arguments_from(batch)); }

  const std::string& archive() const noexcept { return path_; }
  bool has_batch_norm() const { return calls_batch_norm(module_); }

 private:
  static script::Module load(const std::string& path) {
    script::Module module = load_script(path);
    std::map<Place, at::Tensor> known;
    tie(module, known);
    return module;
  }

  /// Arguments of forward by their names where the batch has all of them, else the inputs of the batch in order. A
  /// single dict receives all inputs.
  std::vector<c10::IValue> arguments_from(const batch::Batch& batch) const {
    const std::vector<c10::Argument>& declared = module_.get_method("forward").function().getSchema().arguments();
    const std::vector<c10::Argument> wanted(declared.begin() + 1, declared.end());  // all but self
    const std::vector<std::string>& inputs = batch.roles().inputs;
    if (wanted.size() == 1 && wanted[0].type()->kind() == c10::TypeKind::DictType) {
      c10::Dict<std::string, at::Tensor> all;
      for (const std::string& key : inputs) all.insert(key, batch.tensor(key));
      return {all};
    }
    const bool has_names = wanted.size() > 1 && std::all_of(wanted.begin(), wanted.end(), [&](const auto& argument) {
                             return batch.has(argument.name()) || argument.default_value().has_value();
                           });
    std::vector<c10::IValue> values;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const bool is_given = has_names ? batch.has(wanted[i].name()) : i < inputs.size();
      if (!is_given && wanted[i].default_value()) {
        values.push_back(*wanted[i].default_value());
        continue;
      }
      if (!is_given) {
        throw ConfigError("model.file: forward of '" + path_ + "' has the argument '" + wanted[i].name() +
                          "', but the batch has only " + std::to_string(inputs.size()) + " inputs");
      }
      const std::string& key = has_names ? wanted[i].name() : inputs[i];
      if (wanted[i].type()->kind() == c10::TypeKind::ListType) {
        values.emplace_back(batch.tensors(key));
      } else {
        values.emplace_back(batch.tensor(key));
      }
    }
    return values;
  }

  batch::Outputs outputs_for(std::vector<c10::IValue> arguments) {
    batch::Outputs outputs;
    add_outputs("output", computed(std::move(arguments)), outputs);
    return outputs;
  }

  c10::IValue computed(std::vector<c10::IValue> arguments) {
    const script::GraphOptimizerEnabledGuard guard(optimizes_);
    try {
      return module_.forward(std::move(arguments));
    } catch (const std::exception& error) {
      std::string devices;
      for (const std::string& device : devices_) devices += (devices.empty() ? "" : ", ") + device;
      throw ConfigError("model.file: forward of '" + path_ + "' failed: " + message_in(error.what()) +
                        (devices.empty() ? "" : " (its code places tensors on " + devices + ")"));
    }
  }

  std::string path_;
  bool optimizes_;
  script::Module module_;
  std::vector<std::string> devices_;
};

}  // namespace

ScriptPart::ScriptPart(const torch::jit::Module& module) : module_(module), kind_(kind_of_class(module)) {
  for (const ScriptTensor& own : own_parameters(module)) {
    register_parameter(own.name, own.tensor, own.tensor.requires_grad());
  }
  for (const ScriptTensor& own : own_buffers(module)) register_buffer(own.name, own.tensor);
  for (const auto& child : module.named_children()) {
    register_module(child.name, std::make_shared<ScriptPart>(child.value));
  }
}

void ScriptPart::train(bool is_training) {
  Module::train(is_training);
  if (module_.hasattr("training")) module_.setattr("training", is_training);
}

std::string script_with_batch_norm(const Model& model) {
  const auto* const script = dynamic_cast<const TorchScript*>(&model);
  return script != nullptr && script->has_batch_norm() ? script->archive() : "";
}

std::shared_ptr<Model> make_torchscript(const Section& model, const Task&) {
  const ScopedMemory with_values;
  const std::string path = model.text("file");
  if (path.empty()) throw ConfigError(model.cite("file") + ": model.name=torchscript requires the path of an archive");
  return std::make_shared<TorchScript>(path, model.boolean("optimize"));
}

}  // namespace lockstep::models
