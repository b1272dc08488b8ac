// SPDX-License-Identifier: BSD-3-Clause
#include "models/script/script_archive.hpp"

#include <lockstep/core/error.hpp>

#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <unistd.h>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/foreign/foreign.hpp"
#include "checkpoints/interop/script_records.hpp"
#include "core/text/text_stream.hpp"

namespace lockstep::models {

namespace {

namespace fs = std::filesystem;
namespace jit = torch::jit;

std::string first_line_of(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

[[noreturn]] void throw_not_script(const std::string& path, const std::string& reason) {
  throw ConfigError("model.file: '" + path + "' " + reason);
}

/// Refuses what LibTorch should not parse.
void check_records(const std::string& path) {
  if (!fs::exists(path)) throw_not_script(path, "does not exist");
  if (!fs::is_regular_file(path)) throw_not_script(path, "is not a file");
  const checkpoints::FileKind kind = checkpoints::kind_of(path);
  const checkpoints::DiskSource source(path);
  std::array<std::byte, 2> head = {};
  if (source.size() >= head.size()) source.read_to(0, head);
  if (head != std::array{std::byte{'P'}, std::byte{'K'}}) {
    const std::string what =
        kind == checkpoints::FileKind::unknown ? "a file of another kind" : checkpoints::describe(path);
    throw_not_script(
        path, "is " + what + ", not a TorchScript archive: write one in Python with torch.jit.script(model).save(...)");
  }
  const std::string fault = checkpoints::fault_of_script(source);
  if (!fault.empty()) throw_not_script(path, fault);
}

/// Calls `visit` for the nodes of a block and of the blocks inside it.
template <class Visit>
void for_each_node(const jit::Block* block, const Visit& visit) {
  for (const jit::Node* node : block->nodes()) {
    visit(*node);
    for (const jit::Block* inner : node->blocks()) for_each_node(inner, visit);
  }
}

/// The code of `forward` with all calls replaced by the code of their functions.
std::shared_ptr<jit::Graph> whole_code_of(const jit::Module& module) {
  const auto graph = module.get_method("forward").graph()->copy();
  jit::Inline(*graph);
  return graph;
}

bool depends_on_mode(const jit::Node& node) {
  static const std::array<std::string_view, 4> kinds = {"aten::batch_norm", "aten::dropout", "aten::feature_dropout",
                                                        "aten::alpha_dropout"};
  return std::find(kinds.begin(), kinds.end(), std::string_view(node.kind().toQualString())) != kinds.end();
}

std::string joined_name(const std::string& parent, const std::string& name) {
  return parent.empty() ? name : parent + "." + name;
}

/// Whether an attribute of the module itself is a tensor of the wanted role.
std::vector<ScriptTensor> own_tensors(const jit::Module& module, bool wants_parameters) {
  const auto type = module.type();
  std::vector<ScriptTensor> tensors;
  for (std::size_t i = 0; i < type->numAttributes(); ++i) {
    if (!(wants_parameters ? type->is_parameter(i) : type->is_buffer(i))) continue;
    const c10::IValue value = module._ivalue()->getSlot(i);
    if (value.isTensor() && value.toTensor().defined())
      tensors.push_back({type->getAttributeName(i), value.toTensor()});
  }
  return tensors;
}

void require_trainable_part(const std::string& path, const jit::Module& module, const std::string& name) {
  const std::string where = name.empty() ? "the module" : "its part '" + name + "'";
  const auto type = module.type();
  for (std::size_t i = 0; i < type->numAttributes(); ++i) {
    const c10::IValue value = module._ivalue()->getSlot(i);
    const bool is_packed = value.isCustomClass() || (value.isObject() && !value.isModule());
    const bool is_quantized = value.isTensor() && value.toTensor().defined() && value.toTensor().is_quantized();
    if (is_quantized || (is_packed && type->getAttribute(i)->repr_str().find("quantized") != std::string::npos)) {
      throw_not_script(path, "cannot be trained: " + where + " is quantized. Save the module before quantization");
    }
  }
  for (const auto& child : module.named_children()) {
    require_trainable_part(path, child.value, joined_name(name, child.name));
  }
}

void require_trainable(const std::string& path, const jit::Module& module) {
  if (!module.find_method("forward")) throw_not_script(path, "cannot be trained: its module has no method 'forward'");
  require_trainable_part(path, module, "");
  bool has_any = false;
  for (const at::Tensor& parameter : module.parameters()) has_any = has_any || parameter.requires_grad();
  if (!has_any) {
    throw_not_script(path,
                     "cannot be trained: no parameter requires a gradient. torch.jit.freeze turns parameters into "
                     "constants; save the module without it, and before requires_grad_(False)");
  }
  for (const std::string& device : devices_in(module)) {
    const c10::Device named(device);
    if (named.is_cpu() || (named.is_cuda() && at::hasCUDA())) continue;
    throw_not_script(path, "cannot be trained here: its code places tensors on the device '" + device +
                               "'. Script the module without a fixed device");
  }
}

/// Removes an unfinished file.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(std::string path) : path_(std::move(path)) {}
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;
  ~UnfinishedFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

void assign(const jit::Module& module, const std::string& parent, const std::string& target,
            const std::function<at::Tensor(const std::string&)>& value_of) {
  for (const bool wants_parameters : {true, false}) {
    for (const ScriptTensor& own : own_tensors(module, wants_parameters)) {
      const std::string name = joined_name(parent, own.name);
      const at::Tensor value = value_of(name);
      if (value.sizes() != own.tensor.sizes()) {
        throw CheckpointError(target, "'" + name + "' has another shape in the checkpoint than in the archive");
      }
      own.tensor.detach().copy_(value);
    }
  }
  for (const auto& child : module.named_children())
    assign(child.value, joined_name(parent, child.name), target, value_of);
}

}  // namespace

jit::Module load_script(const std::string& path) {
  check_records(path);
  std::optional<jit::Module> module;
  try {
    module = jit::load(path, at::kCPU);
  } catch (const c10::Error& error) {
    throw CheckpointError(path, "LibTorch cannot load the archive: " + first_line_of(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw CheckpointError(path, "LibTorch cannot load the archive: " + first_line_of(error.what()));
  }
  require_trainable(path, *module);
  return *module;
}

std::vector<ScriptTensor> own_parameters(const jit::Module& module) { return own_tensors(module, true); }

std::vector<ScriptTensor> own_buffers(const jit::Module& module) { return own_tensors(module, false); }

bool has_fixed_mode(const jit::Module& module) {
  bool is_mode_read = false;
  bool is_mode_needed = false;
  const auto code = whole_code_of(module);
  for_each_node(code->block(), [&](const jit::Node& node) {
    is_mode_needed = is_mode_needed || depends_on_mode(node);
    is_mode_read = is_mode_read || (node.kind() == c10::prim::GetAttr && node.s(c10::attr::name) == "training");
  });
  return is_mode_needed && !is_mode_read;
}

bool calls_batch_norm(const jit::Module& module) {
  bool is_called = false;
  const auto code = whole_code_of(module);
  for_each_node(code->block(), [&](const jit::Node& node) {
    const std::string_view kind = node.kind().toQualString();
    is_called = is_called || kind == "aten::batch_norm" || kind == "aten::native_batch_norm";
  });
  return is_called;
}

std::vector<std::string> devices_in(const jit::Module& module) {
  std::vector<std::string> devices;
  const auto code = whole_code_of(module);
  for_each_node(code->block(), [&devices](const jit::Node& node) {
    const bool is_device = node.kind() == c10::prim::Constant && node.outputs().size() == 1 &&
                           node.output()->type()->kind() == c10::TypeKind::DeviceObjType &&
                           node.hasAttribute(c10::attr::value);
    if (!is_device) return;
    const std::string name = node.s(c10::attr::value);
    if (std::find(devices.begin(), devices.end(), name) == devices.end()) devices.push_back(name);
  });
  return devices;
}

void write_script(const std::string& from, const std::string& destination,
                  const std::function<at::Tensor(const std::string& name)>& value_of) {
  const jit::Module module = load_script(from);
  const torch::NoGradGuard no_grad;
  assign(module, "", destination, value_of);
  TextWriter archive;
  try {
    module.save(archive);
  } catch (const std::exception& error) {
    throw CheckpointError(destination, "the archive cannot be written: " + first_line_of(error.what()));
  }
  const fs::path target(destination);
  const std::string folder = target.has_parent_path() ? target.parent_path().string() : ".";
  const UnfinishedFile unfinished(destination + ".tmp" + std::to_string(::getpid()));
  checkpoints::write_file(unfinished.path(), archive.str());
  checkpoints::move(unfinished.path(), destination);
  checkpoints::sync_folder(folder);
}

}  // namespace lockstep::models
