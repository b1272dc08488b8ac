// SPDX-License-Identifier: BSD-3-Clause
// Initial parameters from a file.
#include "engine/setup/init_from.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>

#include "checkpoints/foreign/foreign.hpp"
#include "checkpoints/store/store.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/saving/reading.hpp"
#include "parallel/store/tensor_collectives.hpp"
#include "small_run.hpp"
#include "support/folders.hpp"
#include "support/program.hpp"
#include "support/sentence.hpp"

namespace lockstep::engine {
namespace init_from_test {

using checkpoints::PythonValue;

const Settings kBase = {{"model.name", "mlp"}, {"model.hidden", "16"}, {"data.train_size", "100"}};

/// Whether a line of the text has these parts in this order, beginning with the first.
bool has_row(const std::string& text, const std::vector<std::string>& parts) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::size_t position = line.find_first_not_of(' ');
    if (position == std::string::npos || line.compare(position, parts[0].size(), parts[0]) != 0) continue;
    for (const std::string& part : parts) position = std::min(line.find(part, position), line.size());
    if (position < line.size()) return true;
  }
  return false;
}

class InitFromTest : public ::testing::Test {
 protected:
  /// Files of a model with other initial values than those of seed 1.
  InitFromTest() : other_(world_, with(kBase, {{"run.seed", "2"}})) {
    shared_ = world_.broadcast(folder_.path());
    const checkpoints::Archive archive = capture(other_.trainer, "", world_.is_root());
    if (world_.is_root()) {
      checkpoints::write(shared_, 0, archive);
      write_as("flat.safetensors", "");
      write_as("flat.pt", "");
      write_as("wrapped.pt", "_orig_mod.module.");
      write_as("lightning.safetensors", "model.");
      write_as("prefixed.npz", "other.");
    }
    world_.barrier();
  }
  ~InitFromTest() override { world_.barrier(); }

  void write_as(const std::string& name, const std::string& prefix) {
    std::vector<checkpoints::NamedArray> arrays;
    for (const auto& item : other_.model.wrapper->model().named_parameters()) {
      arrays.push_back({prefix + item.key(),
                        {.dtype = DType::float32,
                         .shape = item.value().sizes().vec(),
                         .bytes = parallel::bytes_of(item.value()),
                         .owner = nullptr}});
    }
    const std::string path = shared_ + "/" + name;
    checkpoints::write_foreign(path, *checkpoints::export_kind_of(path), arrays, {});
  }

  /// A group of a file, with the parameters of the other model.
  struct NestedGroup {
    std::string path;                                              ///< keys with slashes; "" for the root
    std::function<std::string(const std::string&)> new_name = {};  ///< none: a group "meta" of mmengine or mmcv
    double added = 0;                                              ///< added to each value
    std::string counter = "";  ///< name of a further scalar, or the configuration in "meta"
  };

  /// A file of PyTorch with nested maps. Collective.
  void write_nested(const std::string& name, const std::vector<NestedGroup>& groups) {
    world_.barrier();  // the file is no longer used
    if (world_.is_root()) {
      PythonValue::Map root;
      for (const NestedGroup& group : groups) {
        PythonValue::Map map = map_of(group);
        const auto slash = group.path.find('/');
        if (group.path.empty()) root = map;
        if (slash != std::string::npos) map = {{{group.path.substr(slash + 1), {map}}}};
        if (group.path.empty()) continue;
        const std::string key = group.path.substr(0, slash);
        if (!root.items.empty() && root.items.back().key == decltype(root.items.back().key)(key)) {
          auto& before = std::get<PythonValue::Map>(root.items.back().value.value);
          before.items.insert(before.items.end(), map.items.begin(), map.items.end());
        } else {
          root.items.push_back({key, {map}});
        }
      }
      std::filesystem::remove(shared_ + "/" + name);
      checkpoints::write_pytorch_value(shared_ + "/" + name, {root});
    }
    world_.barrier();
  }

  PythonValue::Map map_of(const NestedGroup& group) {
    PythonValue::Map map;
    if (!group.new_name)
      return {{{group.counter.empty() ? "mmengine_version" : "config", {std::string("0.10.4") + group.counter}}}};
    if (!group.counter.empty()) map.items.push_back({group.counter, {array_of(torch::tensor(9), "counter")}});
    for (const auto& item : other_.model.wrapper->model().named_parameters()) {
      const at::Tensor changed = item.value().detach() + group.added;
      map.items.push_back({group.new_name(item.key()), {array_of(changed, item.key())}});
    }
    return map;
  }

  /// Whether a run of seed 1 that begins from the file has the other model's parameters, plus a number.
  bool takes(const Settings& init, double added = 0) {
    SmallRun run(world_, with(kBase, init));
    EXPECT_FALSE(equals_other(run, added));
    EXPECT_TRUE(init_from(run.resources.world, *run.model.wrapper, run.sections).empty());
    return equals_other(run, added);
  }

  bool equals_other(SmallRun& run, double added = 0) {
    const auto mine = run.model.wrapper->model().parameters();
    const auto others = other_.model.wrapper->model().parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (!at::equal(mine[i], others[i] + added)) return false;
    }
    return true;
  }

  std::string error_of(const Settings& settings) {
    SmallRun run(world_, with(kBase, settings));
    try {
      init_from(run.resources.world, *run.model.wrapper, run.sections);
      return "";
    } catch (const CheckpointError& error) {
      EXPECT_TRUE(error.is_agreed() || world_.size() == 1);
      return error.what();
    }
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  std::string shared_;
  SmallRun other_;
};

TEST_F(InitFromTest, ItsOwnCheckpointsAndOtherFiles) {
  EXPECT_TRUE(takes({{"init.from", shared_ + "/step-000000000000"}}));
  EXPECT_TRUE(takes({{"init.from", shared_ + "/step-000000000000/state.h5"}}));
  EXPECT_TRUE(takes({{"init.from", shared_ + "/flat.safetensors"}}));
  EXPECT_TRUE(takes({{"init.from", shared_ + "/flat.pt"}}));
  EXPECT_TRUE(takes({{"init.from", shared_ + "/prefixed.npz"}, {"init.rename", "other.="}}));
}

// Each host has one copy of the weights, of which its ranks read parts. Nothing else is read.
TEST_F(InitFromTest, RanksReadPartsOfACheckpoint) {
  const std::string path = shared_ + "/step-000000000000";
  const HostWeights weights(world_, world_.split_by_host(), {path});
  const checkpoints::Archive archive = weights.read(path);
  world_.barrier();
  const checkpoints::Archive whole = checkpoints::read(path);
  std::size_t compared = 0;
  for (const std::string& name : whole.array_paths()) {
    if (!name.starts_with("/model/")) continue;
    const auto& got = archive.array(name).bytes;
    const auto& wanted = whole.array(name).bytes;
    EXPECT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end())) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 4U);
  EXPECT_THROW(HostWeights(world_, world_.split_by_host(), {path, shared_ + "/missing"}), CheckpointError);
}

TEST_F(InitFromTest, PrefixesOfWrappersAreRemoved) {
  EXPECT_TRUE(takes({{"init.from", shared_ + "/wrapped.pt"}}));
  EXPECT_TRUE(takes({{"init.from", shared_ + "/lightning.safetensors"}}));
  EXPECT_TRUE(takes({{"init.from", shared_ + "/wrapped.pt," + shared_ + "/flat.pt"}}));
}

// Each kind of wrapper names its part of a model, wherever in the model it is.
TEST_F(InitFromTest, PartsOfWrappersAreRemovedAnywhere) {
  for (const char* const wrappers :
       {"_fsdp_wrapped_module.", "hidden0._fsdp_wrapped_module._checkpoint_wrapped_module.", "hidden0._orig_mod.",
        "module.hidden0.module.", "_orig_mod.module.", "module._orig_mod.",
        "model._forward_module.hidden0._fpw_module.", "model._orig_mod.", "module.model.", "model.module.",
        "_forward_module.model.", "_module.hidden0._checkpoint_wrapped_module._module.",
        "_fsdp_wrapped_module._orig_mod.hidden0._checkpoint_wrapped_module._fsdp_wrapped_module."}) {
    SCOPED_TRACE(wrappers);
    const std::string text = wrappers;
    const auto layer = text.find("hidden0.");
    write_nested("anywhere.pt", {{"", [&](const std::string& name) {
                                    if (layer == std::string::npos) return text + name;
                                    const bool is_inside = name.starts_with("hidden0.");
                                    return is_inside ? text + name.substr(8) : text.substr(0, layer) + name;
                                  }}});
    EXPECT_TRUE(takes({{"init.from", shared_ + "/anywhere.pt"}}));
  }
  write_nested("unknown.pt", {{"", [](const std::string& name) { return "_wrap._wrap._other." + name; }}});
  EXPECT_NE(error_of({{"init.from", shared_ + "/unknown.pt"}}), "");
  EXPECT_TRUE(
      takes({{"init.from", shared_ + "/unknown.pt"}, {"init.rename", "re:_wrap\\.="}, {"init.rename", "_other.="}}));
}

// Every layout states the average (the values of the other model) and the trained weights (the same, plus 1).
TEST_F(InitFromTest, AveragedAndTrainedWeightsOfEveryLayout) {
  const auto plain = [](const std::string& name) { return name; };
  const auto module = [](const std::string& name) { return "module." + name; };
  using Groups = std::vector<NestedGroup>;
  const std::pair<std::string, Groups> layouts[] = {
      {"timm", {{"state_dict_ema", plain}, {"state_dict", plain, 1}}},
      {"DeiT, MAE", {{"model_ema", plain}, {"model", plain, 1}}},
      {"torchvision", {{"model_ema", module, 0, "n_averaged"}, {"model", plain, 1}}},
      {"torch.optim.swa_utils", {{"swa", module, 0, "n_averaged"}, {"network", plain, 1}}},
      {"AveragedModel under another key", {{"other", module, 0, "n_averaged"}, {"model", plain, 1}}},
      {"RT-DETR", {{"ema/module", plain}, {"model", plain, 1}}},
      {"BasicSR", {{"params_ema", plain}, {"params", plain, 1}}},
      {"ema_state_dict of other programs", {{"ema_state_dict", plain}, {"state_dict", plain, 1}}},
      {"mmengine", {{"state_dict", plain}, {"ema_state_dict", module, 1, "steps"}}},
      {"mmengine's version", {{"state_dict", plain}, {"ema_state_dict", module, 1}, {"meta", {}}}},
      {"Lightning", {{"state_dict", plain}, {"current_model_state", plain, 1}}},
  };
  for (const auto& [name, groups] : layouts) {
    SCOPED_TRACE(name);
    write_nested("layout.pt", groups);
    const std::string file = shared_ + "/layout.pt";
    EXPECT_TRUE(takes({{"init.from", file}}));
    EXPECT_TRUE(takes({{"init.from", file}, {"init.weights", "average"}}));
    EXPECT_TRUE(takes({{"init.from", file}, {"init.weights", "trained"}}, 1));
  }
}

// mmcv's EMAHook keeps the second weights of "a.b" in the buffer "ema_a_b", and exchanges both after epochs.
TEST_F(InitFromTest, AveragesInBuffersOfOneGroup) {
  const auto plain = [](const std::string& name) { return name; };
  const auto buffer = [](std::string name) {
    std::replace(name.begin(), name.end(), '.', '_');
    return "ema_" + name;
  };
  const std::string file = shared_ + "/buffers.pt";
  for (const bool is_by_epoch : {true, false}) {
    for (const std::string group : {"state_dict", "model"}) {
      SCOPED_TRACE(group + (is_by_epoch ? " by epoch" : " by iteration"));
      write_nested("buffers.pt", {{group, plain, is_by_epoch ? 0.0 : 1.0},
                                  {group, buffer, is_by_epoch ? 1.0 : 0.0},
                                  {"meta", {}, 0, is_by_epoch ? "type='EpochBasedRunner'" : "type='IterBasedRunner'"}});
      EXPECT_TRUE(takes({{"init.from", file}}));
      EXPECT_TRUE(takes({{"init.from", file}, {"init.weights", "average"}}));
      EXPECT_TRUE(takes({{"init.from", file}, {"init.weights", "trained"}}, 1));
    }
  }
}

TEST_F(InitFromTest, WeightsThatAFileLacksAreRefused) {
  const auto module = [](const std::string& name) { return "module." + name; };
  const std::string file = shared_ + "/one.pt";
  const auto sentence_of = [&](const std::string& weights) {
    SmallRun run(world_, with(kBase, {{"init.from", file}, {"init.weights", weights}}));
    return testing::sentence_of<ConfigError>([&] { init_from(run.resources.world, *run.model.wrapper, run.sections); });
  };
  write_nested("one.pt", {{"", module, 0, "n_averaged"}});  // AveragedModel.state_dict() by itself
  EXPECT_TRUE(takes({{"init.from", file}, {"init.weights", "average"}}));
  EXPECT_NE(sentence_of("trained").find(file + " contains only an average of the weights"), std::string::npos);
  write_nested("one.pt",
               {{"state_dict", module}, {"ema_of_losses", [](const std::string& name) { return "x" + name; }}});
  EXPECT_TRUE(takes({{"init.from", file}, {"init.weights", "trained"}}));
  EXPECT_NE(sentence_of("average").find(file + " contains no average of the weights"), std::string::npos);
}

TEST_F(InitFromTest, OtherNamesAreListed) {
  const std::string error = error_of({{"init.from", shared_ + "/prefixed.npz"}});
  EXPECT_TRUE(has_row(error, {"hidden0.weight", "missing", "float32 [16, ", "init.rename"})) << error;
  EXPECT_TRUE(has_row(error, {"other.hidden0.weight", "float32 [16, ", "missing", "init.rename"})) << error;
  EXPECT_NE(error.find("init.rename"), std::string::npos) << error;
}

TEST_F(InitFromTest, OtherShapesAreListedOrSkipped) {
  const Settings wider = {{"init.from", shared_ + "/flat.pt"}, {"model.hidden", "16,8"}};
  const std::string error = error_of(wider);
  EXPECT_TRUE(has_row(error, {"head.weight", "float32 [10, 16]", "float32 [10, 8]"})) << error;
  EXPECT_TRUE(has_row(error, {"hidden1.weight", "missing", "float32 [8, 16]"})) << error;
  SmallRun run(world_, with(with(kBase, wider), {{"init.partial", "true"}}));
  EXPECT_EQ(init_from(run.resources.world, *run.model.wrapper, run.sections).size(),
            3U);  // head.weight; hidden1's weight and bias
  EXPECT_TRUE(at::equal(run.model.wrapper->model().named_parameters()["hidden0.weight"],
                        other_.model.wrapper->model().named_parameters()["hidden0.weight"]));
}

TEST_F(InitFromTest, TwentyDifferencesAreShown) {
  std::string hidden = "16";
  for (int i = 0; i < 14; ++i) hidden += ",16";
  const std::string error = error_of({{"init.from", shared_ + "/flat.pt"}, {"model.hidden", hidden}});
  EXPECT_NE(error.find("28 tensors differ"), std::string::npos) << error;
  EXPECT_TRUE(has_row(error, {"tensor", "in the file", "in the model", "what to do"})) << error;
  EXPECT_TRUE(has_row(error, {"and 8 more"})) << error;
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 22) << error;
}

// The same parameters as with initial values, which are neither drawn nor copied.
TEST_F(InitFromTest, PendingValuesAreReplaced) {
  const Settings settings = with(kBase, {{"init.from", shared_ + "/flat.safetensors"}});
  SmallRun drawn(world_, settings);
  EXPECT_TRUE(replaces_all_parameters(drawn.sections.at("init")));
  EXPECT_FALSE(replaces_all_parameters(SmallRun(world_, kBase).sections.at("init")));
  const Resources resources = make_resources(drawn.sections, world_);
  const WrappedModel pending = make_wrapped_model(resources, drawn.sections, builtin_registry(),
                                                  drawn.splits.train->task(), {.is_loaded = true});
  const auto first = drawn.model.wrapper->model().parameters()[0];
  EXPECT_FALSE(at::equal(pending.wrapper->model().parameters()[0], first));  // nothing was drawn
  EXPECT_TRUE(init_from(world_, *pending.wrapper, drawn.sections).empty());
  const auto mine = pending.wrapper->model().parameters();
  const auto others = other_.model.wrapper->model().parameters();
  for (std::size_t i = 0; i < mine.size(); ++i) EXPECT_TRUE(at::equal(mine[i], others[i]));
}

TEST_F(InitFromTest, NothingInCommonIsAnErrorEvenInPart) {
  EXPECT_NE(error_of({{"init.from", shared_ + "/prefixed.npz"}, {"init.partial", "true"}}), "");
  EXPECT_NE(error_of({{"init.from", shared_ + "/nowhere.pt"}}).find("nowhere.pt"), std::string::npos);
}

// Lower precision outside, float32 here.
TEST_F(InitFromTest, FloatingTypesAreConverted) {
  SmallRun run(world_, with(kBase, {{"init.from", shared_ + "/flat.pt"}, {"train.precision", "fp64"}}));
  EXPECT_TRUE(init_from(run.resources.world, *run.model.wrapper, run.sections).empty());
  EXPECT_TRUE(at::equal(run.model.wrapper->model().parameters()[0],
                        other_.model.wrapper->model().parameters()[0].to(at::kDouble)));
}

// Files of torch, torchvision and timm, whose images have three channels; ours have one.
TEST_F(InitFromTest, FilesOfPublicLibraries) {
  const std::string files = testing::golden("models/files").string() + "/";
  if (!std::filesystem::is_directory(files)) GTEST_SKIP() << "there is no " << files;
  const checkpoints::Archive plain = checkpoints::read_foreign(files + "resnet_plain.pth");
  const std::string width = std::to_string(plain.array("/conv1.weight").shape.at(0));
  const Settings resnet = {{"model.name", "resnet18"}, {"model.width", width}, {"data.train_size", "100"}};
  const Settings adapted = with(resnet, {{"init.adapt_channels", "true"}});
  const auto expect_head = [&](SmallRun& run, double tolerance) {
    const at::Tensor head = run.model.wrapper->model().named_parameters()["fc.weight"];
    EXPECT_LE((head - tensor_over(plain.array("/fc.weight"))).abs().max().item<double>(), tolerance);
  };
  for (const char* name :
       {"resnet_plain.pth", "resnet_ddp_wrapped.pth.tar", "resnet_references.pth", "resnet_lightning.ckpt",
        "resnet_compiled.pth", "resnet_compiled_ddp.pth", "resnet_old_no_counts.pth", "resnet_legacy.pth",
        "resnet_channels_last.pth", "resnet_half.pth", "resnet_ema.pth.tar", "resnet.safetensors"}) {
    SCOPED_TRACE(name);
    SmallRun run(world_, with(adapted, {{"init.from", files + name}}));
    EXPECT_TRUE(init_from(run.resources.world, *run.model.wrapper, run.sections).empty());
    expect_head(run, name == std::string("resnet_half.pth") ? 1e-3 : 0);
    const at::Tensor sum = tensor_over(plain.array("/conv1.weight")).sum(1, true);
    const at::Tensor stem = run.model.wrapper->model().named_parameters()["conv1.weight"];
    EXPECT_LE((stem - sum).abs().max().item<double>(), name == std::string("resnet_half.pth") ? 1e-2 : 1e-6);
    EXPECT_EQ(run.model.wrapper->model().named_buffers()["bn1.num_batches_tracked"].item<std::int64_t>() == 0,
              name == std::string("resnet_old_no_counts.pth"));
  }
  SmallRun trained(world_, with(adapted, {{"init.from", files + "resnet_ema.pth.tar"}, {"init.weights", "trained"}}));
  init_from(trained.resources.world, *trained.model.wrapper, trained.sections);
  const at::Tensor head = trained.model.wrapper->model().named_parameters()["fc.weight"];
  EXPECT_LE((head - tensor_over(plain.array("/fc.weight")) - 1).abs().max().item<double>(), 1e-6);

  SmallRun gray(world_, with(resnet, {{"init.from", files + "resnet_gray.safetensors"}}));
  EXPECT_TRUE(init_from(gray.resources.world, *gray.model.wrapper, gray.sections).empty());
  expect_head(gray, 0);

  const auto shape_of = [](const checkpoints::Archive& archive, const std::string& path) {
    std::string sizes;
    for (const std::int64_t size : archive.array(path).shape)
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
    return "float32 [" + sizes + "]";
  };
  const checkpoints::Archive other_head = checkpoints::read_foreign(files + "resnet_1000_classes.safetensors");
  const std::string classes = error_of(with(adapted, {{"init.from", files + "resnet_1000_classes.safetensors"}}));
  EXPECT_TRUE(has_row(
      classes, {"fc.weight", shape_of(other_head, "/fc.weight"), shape_of(plain, "/fc.weight"), "init.head=reset"}))
      << classes;
  const Settings reset = {{"init.from", files + "resnet_1000_classes.safetensors"}, {"init.head", "reset"}};
  SmallRun without_head(world_, with(adapted, reset));
  const at::Tensor initial = without_head.model.wrapper->model().named_parameters()["fc.weight"].clone();
  EXPECT_TRUE(init_from(without_head.resources.world, *without_head.model.wrapper, without_head.sections).empty());
  EXPECT_TRUE(at::equal(without_head.model.wrapper->model().named_parameters()["fc.weight"], initial));

  const std::string channels = error_of(with(resnet, {{"init.from", files + "resnet.safetensors"}}));
  EXPECT_TRUE(has_row(channels, {"conv1.weight", shape_of(plain, "/conv1.weight"), "float32 [" + width + ", 1, 3, 3]",
                                 "adapt_channels"}))
      << channels;
  const Settings large = {{"model.name", "resnet18"},   {"model.width", width},
                          {"model.stem", "imagenet"},   {"init.adapt_channels", "true"},
                          {"data.name", "synthetic"},   {"data.shape", "1,32,32"},
                          {"data.size", "96"},          {"data.classes", "10"},
                          {"data.train_size", "12000"}, {"data.val_size", "2000"}};
  const std::string stem = error_of(with(large, {{"init.from", files + "resnet.safetensors"}}));
  EXPECT_NE(stem.find("set model.stem=small"), std::string::npos) << stem;
  const std::string whole = error_of(with(adapted, {{"init.from", files + "resnet_whole_module.pth"}}));
  EXPECT_NE(whole.find("save model.state_dict()"), std::string::npos) << whole;
}

}  // namespace init_from_test
}  // namespace lockstep::engine
