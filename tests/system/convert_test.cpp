// SPDX-License-Identifier: BSD-3-Clause
// `ckpt convert --as timm|torchvision` and `--only optimizer`: what is written comes back with the same bits, and the
// libraries themselves load it strictly and compute the same.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>

#include "checkpoints/store/store.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace convert_test {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::ProgramResult;
using testing::run_ranks;

constexpr int kUsage = 2;
constexpr int kIncompatible = 6;
constexpr int kRefused = 7;
constexpr int kNotFound = 8;

/// A PPM file of pixels that look random.
std::string ppm(int width, int height, unsigned seed) {
  std::string pixels = "P6 " + std::to_string(width) + " " + std::to_string(height) + " 255\n";
  for (int i = 0; i < 3 * width * height; ++i) {
    seed = seed * 1664525U + 1013904223U;
    pixels += static_cast<char>(seed >> 24);
  }
  return pixels;
}

/// A model, and the libraries that have it.
struct Case {
  std::string name;
  std::string model;  ///< arguments of the trainer
  std::vector<std::string> libraries = {"timm", "torchvision"};
};

const std::vector<Case>& cases() {
  static const std::vector<Case> rows = {
      {"resnet18", "--model.name=resnet18 --model.stem=imagenet"},
      {"resnet50", "--model.name=resnet50 --model.groups=2 --model.width_per_group=16"},
      {"vit", "--model.name=vit --model.patch_size=8 --model.embed_dim=24 --model.depth=2 --model.num_heads=2"},
      {"vit_options",
       "--model.name=vit --model.patch_size=8 --model.embed_dim=24 --model.depth=2 --model.num_heads=2 "
       "--model.reg_tokens=2 --model.no_embed_class=true --model.init_values=0.1 --model.qk_norm=true "
       "--model.qkv_bias=false --model.pre_norm=true --model.global_pool=avg --model.mlp_ratio=1.7",
       {"timm"}},
      {"convnext", "--model.name=convnext --model.depths=1,2,1,1 --model.widths=8,16,24,32"},
      {"mobilenet_v2", "--model.name=mobilenet_v2 --model.width_mult=0.25", {"torchvision"}},
      {"mobilenet_v3_small", "--model.name=mobilenet_v3_small", {"torchvision"}},
      {"efficientnet_b0", "--model.name=efficientnet_b0", {"torchvision"}},
  };
  return rows;
}

class ConvertTest : public ::testing::Test {
 protected:
  static constexpr int kImages = 12;

  void SetUp() override {
    for (int i = 0; i < kImages; ++i) {
      const fs::path path =
          folder_ / ("images/" + std::string(i % 2 == 0 ? "cat" : "dog") + "/" + std::to_string(10 + i) + ".ppm");
      fs::create_directories(path.parent_path());
      testing::write_file(path, ppm(40 + i, 52 - i, static_cast<unsigned>(i)));
    }
  }

  std::string path(const std::string& name) const { return folder_.path(name); }

  std::string data() const {
    return "--data.name=folder --data.cache=off --data.path=" + path("images") +
           " --data.val_fraction=0 --data.transform=random_resized_crop,size=32 "
           "--data.transform=normalize,mean=0.5,0.4,0.3,std=0.25,0.2,0.3 "
           "--data.val_transform=resize,size=36,filter=bicubic --data.val_transform=center_crop,size=32 "
           "--data.val_transform=normalize,mean=0.5,0.4,0.3,std=0.25,0.2,0.3 --eval.every=never "
           "--train.global_batch_size=6 --log.pictures=0 --log.tensorboard=false ";
  }

  /// Trains for some steps into `run`.
  void train(const std::string& run, const std::string& more, int steps = 2, int ranks = 1) const {
    const ProgramResult outcome = run_ranks(
        ranks, data() + "--train.max_steps=" + std::to_string(steps) + " --run.dir=" + path(run) + " " + more);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  }

  static ProgramResult ckpt(const std::string& arguments) {
    return testing::run_shell(testing::ckpt_program() + " " + arguments, 60);
  }

  /// The file of predictions with all probabilities.
  std::string predictions(const std::string& run, int ranks) const {
    const ProgramResult outcome =
        run_ranks(ranks, "predict --from " + path(run) +
                             " --predict.split=train --predict.probabilities=true --predict.out=" + path("ours.jsonl"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return testing::read_file(path("ours.jsonl"));
  }

  Json convert(const std::string& run, const std::string& more) const {
    const ProgramResult outcome = ckpt("convert " + path(run) + " --json " + more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return Json::parse(outcome.output, nullptr, false);
  }

  void expect_refusal(const std::string& arguments, int code, const std::string& part) const {
    const ProgramResult outcome = ckpt("convert " + arguments);
    EXPECT_EQ(outcome.exit_code, code) << arguments << "\n" << outcome.output;
    EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
    EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
  }

  /// Runs a script with the libraries; it prints "ok" at its end.
  void expect_python(const std::string& script) const {
    testing::write_file(folder_ / "script.py", script);
    const ProgramResult outcome = testing::run_shell("cd " + folder_.path(".") + " && " + python() + " script.py", 300);
    EXPECT_NE(outcome.output.find("ok\n"), std::string::npos) << outcome.output;
  }

  /// A Python with torch, torchvision and timm; empty = there is none.
  static std::string python() {
    const char* const given = std::getenv("LOCKSTEP_PEER_PYTHON");
    return given == nullptr ? "" : given;
  }

  testing::TemporaryFolder folder_;
};

class ConvertFamilyTest : public ConvertTest, public ::testing::WithParamInterface<Case> {};

// A run that reads the file of the library and learns nothing writes the same file again.
TEST_P(ConvertFamilyTest, ReadsBackWithTheSameBits) {
  train("run", GetParam().model);
  for (const std::string& library : GetParam().libraries) {
    const bool is_timm = library == "timm";
    const std::string first = path("first." + library + (is_timm ? "" : ".safetensors"));
    const std::string second = path("second." + library + (is_timm ? "" : ".safetensors"));
    convert("run", "--as " + library + " --to " + first);
    const std::string weights = is_timm ? "/model.safetensors" : "";
    // A run on two ranks, both of which read the file.
    train("again." + library,
          GetParam().model + " --init.from=" + first + weights +
              " --finetune.train=head --optim.lr=0 --optim.weight_decay=0 --run.seed=5",
          1, 2);
    convert("again." + library, "--as " + library + " --to " + second);
    for (const std::string& file :
         is_timm ? std::vector<std::string>{"/model.safetensors", "/config.json"} : std::vector<std::string>{""}) {
      EXPECT_TRUE(testing::read_file(first + file) == testing::read_file(second + file)) << library << file;
    }
    EXPECT_EQ(predictions("again." + library, 2), predictions("run", 1)) << library;
  }
}

// Images from files to probabilities, by the trainer and by the libraries; timm takes its transforms from config.json.
TEST_P(ConvertFamilyTest, TheLibrariesComputeTheSame) {
  if (python().empty()) GTEST_SKIP() << "LOCKSTEP_PEER_PYTHON names no Python with torch, torchvision and timm";
  train("run", GetParam().model + " --optim.name=sgd --optim.lr=0.001");
  ASSERT_NE(predictions("run", 1), "");
  for (const std::string& library : GetParam().libraries) {
    const std::string target = library == "timm" ? "timm" : "weights.pth";
    const Json done = convert("run", "--as " + library + " --to " + path(target));
    const std::string call = done.at("call");
    const std::string create = library == "timm" ? "model = " + call : "model = " + call + R"(
state = torch.load("weights.pth", weights_only=True)
print(model.load_state_dict(state, strict=True))
)";
    expect_python(R"(
import json, timm, torch, torchvision, numpy
from PIL import Image
from timm.data import create_transform, resolve_model_data_config
)" + create + R"(
model.eval()
if hasattr(model, "pretrained_cfg"):
    config = resolve_model_data_config(model)
    assert model.pretrained_cfg["label_names"] == ["cat", "dog"], model.pretrained_cfg
else:
    config = {"input_size": (3, 32, 32), "mean": (.5, .4, .3), "std": (.25, .2, .3), "interpolation": "bicubic",
              "crop_pct": 32 / 36, "crop_mode": "center"}
print(config)
transform = create_transform(**config, is_training=False)
worst = 0
undecided = 0
for line in map(json.loads, open("ours.jsonl")):
    image = transform(Image.open("images/" + line["id"]).convert("RGB"))[None]
    with torch.no_grad():
        theirs = model(image).softmax(1)[0].double().numpy()
    worst = max(worst, abs(theirs - numpy.array(line["probabilities"])).max())
    undecided += 0.001 < theirs[0] < 0.999
print("largest difference of a probability", worst)
assert worst < 1e-5
assert undecided > 5, undecided
print("ok")
)");
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ConvertFamilyTest, ::testing::ValuesIn(cases()),
                         [](const auto& row) { return row.param.name; });

TEST_F(ConvertTest, AveragesTypesAndNames) {
  const std::string model =
      "--model.name=vit --model.patch_size=8 --model.embed_dim=24 --model.depth=1 --model.num_heads=2";
  train("run", model + " --ema.kind=ema --ema.decay=0.5");
  const std::string as = "--as torchvision --to ";
  EXPECT_EQ(convert("run", as + path("default.safetensors")).at("weights"), "ema");
  EXPECT_EQ(convert("run", as + path("ema.safetensors") + " --only ema").at("weights"), "ema");
  EXPECT_EQ(convert("run", as + path("model.safetensors") + " --only model").at("weights"), "model");
  EXPECT_EQ(testing::read_file(path("default.safetensors")), testing::read_file(path("ema.safetensors")));
  EXPECT_NE(testing::read_file(path("default.safetensors")), testing::read_file(path("model.safetensors")));
  convert("run", as + path("half.safetensors") + " --dtype float16");
  for (const Json& array : Json::parse(ckpt("ls --json " + path("half.safetensors")).output).at("arrays")) {
    EXPECT_EQ(array.at("dtype"), "float16") << array;
  }
  testing::write_file(folder_ / "names.txt", "a b\nc\n");
  convert("run", "--as timm --to " + path("timm") + " --class-names " + path("names.txt"));
  EXPECT_EQ(Json::parse(testing::read_file(path("timm") + "/config.json")).at("label_names"), Json({"a b", "c"}));
  testing::write_file(folder_ / "names.txt", "a\n");
  expect_refusal(path("run") + " --as timm --to " + path("timm2") + " --class-names " + path("names.txt"), kUsage,
                 "contains 1 names, but the model has 2 classes");
  EXPECT_FALSE(fs::exists(path("timm2")));
}

TEST_F(ConvertTest, RefusalsAreOneSentence) {
  train("cnn", "--model.name=cnn");
  train("small", "--model.name=resnet18 --model.width=8");
  const std::string cnn = path("cnn") + " ";
  expect_refusal(cnn + "--as timm --to " + path("x"), kIncompatible, "timm lacks this model");
  expect_refusal(cnn + "--as torchvision --to " + path("x.pth"), kIncompatible, "torchvision lacks this model");
  expect_refusal(path("small") + " --as torchvision --to " + path("x.pth"), kIncompatible, "model.stem = small");
  expect_refusal(cnn + "--as keras --to " + path("x.pth"), kUsage, "must be timm or torchvision");
  expect_refusal(cnn + "--as timm --to " + path("x.pth"), kUsage, "writes a folder");
  expect_refusal(cnn + "--as torchvision --to " + path("x.npz"), kUsage, ".safetensors");
  expect_refusal(cnn + "--as torchvision --to " + path("x.pth") + " --rename a=b", kUsage, "--rename");
  expect_refusal(cnn + "--as torchvision --to " + path("x.pth") + " --only all", kUsage, "model or ema");
  expect_refusal(cnn + "--as torchvision --to " + path("x.pth") + " --only ema", kNotFound, "no average");
  convert("cnn", "--to " + path("y.pth"));
  expect_refusal(path("y.pth") + " --as torchvision --to " + path("x.pth"), kUsage, "a checkpoint of Lockstep");
  expect_refusal(cnn + "--only optimizer --to " + path("y.pth"), kRefused, "already exists");
  expect_refusal(cnn + "--only optimizer --to " + path("x.safetensors"), kUsage, ".pt or .pth");
  expect_refusal(path("y.pth") + " --only optimizer --to " + path("x.pth"), kUsage, "a checkpoint of Lockstep");
  EXPECT_FALSE(fs::exists(path("x")) || fs::exists(path("x.pth")));
}

// --- the state of optimizers ---

struct OptimizerCase {
  std::string name;
  std::string options;
};

class ConvertOptimizerTest : public ConvertTest, public ::testing::WithParamInterface<OptimizerCase> {};

const std::vector<OptimizerCase>& optimizer_cases() {
  static const std::vector<OptimizerCase> rows = {
      {"SGD", "--optim.name=sgd --optim.momentum=0.9 --optim.nesterov=true"},
      {"Adam", "--optim.name=adam --optim.amsgrad=true"},
      {"AdamW", "--optim.name=adamw --optim.betas=0.8,0.9"},
      {"RAdam", "--optim.name=radam --optim.decoupled_weight_decay=true"},
      {"Adamax", "--optim.name=adamax"},
      {"RMSprop", "--optim.name=rmsprop --optim.momentum=0.5 --optim.centered=true"},
      {"Adagrad", "--optim.name=adagrad --optim.lr_decay=0.1"},
      {"Adadelta", "--optim.name=adadelta"},
  };
  return rows;
}

const std::string kSmallVit =
    "--model.name=vit --model.patch_size=8 --model.embed_dim=24 --model.depth=1 --model.num_heads=2 ";

// Training goes on in PyTorch: with a gradient of ones, the next update of a parameter by torch.optim is what the
// formula of the optimizer gives for the states in the checkpoint, which torch computes again from our arrays.
TEST_P(ConvertOptimizerTest, TorchLoadsTheState) {
  train("run",
        kSmallVit + GetParam().options + " --optim.lr=0.01 --optim.weight_decay=0.1 --optim.no_decay=norms_biases", 3);
  convert("run", "--as torchvision --only optimizer --to " + path("optimizer.pt"));
  convert("run", "--as torchvision --to " + path("weights.pth"));
  convert("run", "--only all --to " + path("all.safetensors"));
  if (python().empty()) GTEST_SKIP() << "LOCKSTEP_PEER_PYTHON names no Python with torch and torchvision";
  expect_python("name = '" + GetParam().name + "'" + R"(
import torch, torchvision
from safetensors.torch import load_file
model = torchvision.models.VisionTransformer(image_size=32, patch_size=8, num_layers=1, num_heads=2, hidden_dim=24,
                                             mlp_dim=96, num_classes=2)
model.load_state_dict(torch.load("weights.pth", weights_only=True), strict=True)
state = torch.load("optimizer.pt", weights_only=True)
parameters = dict(model.named_parameters())
kind = getattr(torch.optim, name)
groups = [{"params": [parameters[n] for n in group["param_names"]]} for group in state["param_groups"]]
assert sum(len(g["params"]) for g in groups) == len(parameters)
fresh = kind(groups, lr=1.0)
missing = set(fresh.state_dict()["param_groups"][0]) - set(state["param_groups"][0])
assert not missing, missing
fresh.load_state_dict(state)
assert fresh.param_groups[0]["lr"] == 0.01
assert sorted(g["weight_decay"] for g in fresh.param_groups) == [0.0, 0.1]
# The names that slots have in the checkpoint, for one parameter of each group
ours = load_file("all.safetensors")
for theirs, mine in (("heads.head.weight", "head.weight"), ("encoder.ln.bias", "norm.bias"),
                     ("encoder.pos_embedding", "pos_embed")):
    slots = {k: v for k, v in fresh.state[parameters[theirs]].items() if k != "step"}
    assert slots, theirs
    for slot, value in slots.items():
        assert torch.equal(value, ours["optim/0/state/" + slot + "/" + mine]), (theirs, slot)
    if name != "SGD":
        assert fresh.state[parameters[theirs]]["step"].item() == 3
# A state dict that torch writes itself holds the same keys.
reference = kind(groups, lr=1.0)
for p in parameters.values():
    p.grad = torch.ones_like(p)
for group, loaded in zip(reference.param_groups, fresh.param_groups):
    for key, value in loaded.items():
        if key != "params":
            group[key] = value
reference.step()
expected = {k for k in reference.state_dict()["state"][0]}
found = {k for k in state["state"][0]}
assert expected == found, (expected, found)
fresh.step()
assert all(torch.isfinite(p).all() for p in parameters.values())
print("ok")
)");
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ConvertOptimizerTest, ::testing::ValuesIn(optimizer_cases()),
                         [](const auto& row) { return row.param.name; });

TEST_F(ConvertTest, StatesThatTorchDoesNotHaveAreRefused) {
  train("lion", kSmallVit + "--optim.name=lion");
  expect_refusal(path("lion") + " --only optimizer --to " + path("x.pt"), kIncompatible,
                 "torch.optim has no optimizer");
  train("none", kSmallVit + "--ckpt.save_optimizer=false");
  expect_refusal(path("none") + " --only optimizer --to " + path("x.pt"), kNotFound, "no state of an optimizer");
}

}  // namespace convert_test
}  // namespace lockstep
