// SPDX-License-Identifier: BSD-3-Clause
// Models of other programs: folders of timm and files that `model.from` reads, with their transforms and class names.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <span>
#include <sstream>
#include <tuple>

#include "checkpoints/foreign/foreign.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace model_from_test {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Shape = std::vector<std::int64_t>;
using testing::ProgramResult;
using testing::run_ranks;

constexpr int kCheckpoint = 4;

/// An image with a gradient, as PPM.
std::string ppm(int red, int green, int blue) {
  std::string pixels;
  for (int i = 0; i < 24 * 20; ++i) {
    const int shade = i % 24 * 3 + i / 24 * 2;
    for (const int color : {red, green, blue}) pixels += static_cast<char>(std::min(255, color + shade));
  }
  return "P6 24 20 255\n" + pixels;
}

/// Values from a formula, in +-0.5.
std::vector<float> values_of(const std::string& name, const Shape& shape) {
  std::size_t count = 1;
  for (const std::int64_t dimension : shape) count *= static_cast<std::size_t>(dimension);
  std::vector<float> values(count);
  const std::string own = name.starts_with("module.") ? name.substr(7) : name;
  const double start = static_cast<double>(std::hash<std::string>()(own) % 1000);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(0.5 * std::sin(start + 1.7 * static_cast<double>(i)));
  if (name.ends_with("running_var")) {
    for (float& value : values) value += 1;  // positive
  }
  return values;
}

/// A ViT with one block and patches of 8 x 8 pixels in images of 16 x 16.
std::vector<std::pair<std::string, Shape>> vit_shapes(std::int64_t classes) {
  return {{"cls_token", {1, 1, 24}},
          {"pos_embed", {1, 5, 24}},
          {"patch_embed.proj.weight", {24, 3, 8, 8}},
          {"patch_embed.proj.bias", {24}},
          {"blocks.0.norm1.weight", {24}},
          {"blocks.0.norm1.bias", {24}},
          {"blocks.0.attn.qkv.weight", {72, 24}},
          {"blocks.0.attn.qkv.bias", {72}},
          {"blocks.0.attn.proj.weight", {24, 24}},
          {"blocks.0.attn.proj.bias", {24}},
          {"blocks.0.norm2.weight", {24}},
          {"blocks.0.norm2.bias", {24}},
          {"blocks.0.mlp.fc1.weight", {96, 24}},
          {"blocks.0.mlp.fc1.bias", {96}},
          {"blocks.0.mlp.fc2.weight", {24, 96}},
          {"blocks.0.mlp.fc2.bias", {24}},
          {"norm.weight", {24}},
          {"norm.bias", {24}},
          {"head.weight", {classes, 24}},
          {"head.bias", {classes}}};
}

Json vit_config() {
  return {
      {"architecture", "vit_tiny_patch16_224"},
      {"num_classes", 3},
      {"global_pool", "token"},
      {"label_names", {"red", "green", "blue"}},
      {"model_args", {{"img_size", {16, 16}}, {"patch_size", 8}, {"embed_dim", 24}, {"depth", 1}, {"num_heads", 3}}},
      {"pretrained_cfg",
       {{"input_size", {3, 16, 16}},
        {"crop_pct", 0.8},
        {"crop_mode", "center"},
        {"interpolation", "bicubic"},
        {"mean", {0.5, 0.4, 0.3}},
        {"std", {0.5, 0.25, 0.125}}}}};
}

constexpr const char* kVitKeys =
    "--model.name=vit_tiny_patch16_224 --model.patch_size=8 --model.embed_dim=24 --model.depth=1 --model.num_heads=3 ";

class ModelFromTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int i = 0;
    for (const auto& [name, red, green, blue] :
         {std::tuple("red", 150, 10, 0), std::tuple("green", 10, 150, 20), std::tuple("blue", 0, 30, 150)}) {
      for (int k = 0; k < 4; ++k, ++i) {
        write("images/" + std::string(name) + "/" + std::to_string(i) + ".ppm", ppm(red + 5 * k, green, blue));
      }
    }
    write_model("model", vit_config());
  }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(folder_.path(name)).parent_path());
    testing::write_file(folder_.path(name), text);
  }

  void write_weights(const std::string& name, const std::vector<std::pair<std::string, Shape>>& shapes) const {
    std::vector<std::vector<float>> values;
    std::vector<checkpoints::NamedArray> arrays;
    for (const auto& [tensor, shape] : shapes) {
      values.push_back(values_of(tensor, shape));
      arrays.push_back({tensor,
                        {.dtype = DType::float32,
                         .shape = shape,
                         .bytes = std::as_bytes(std::span(values.back())),
                         .owner = nullptr}});
    }
    const std::string path = folder_.path(name);
    fs::create_directories(fs::path(path).parent_path());
    checkpoints::write_foreign(path, *checkpoints::export_kind_of(path), arrays, {});
  }

  void write_model(const std::string& name, const Json& config) const {
    write_weights(name + "/model.safetensors", vit_shapes(3));
    write(name + "/config.json", config.dump(2));
  }

  std::string images() const {
    return "--data.name=folder --data.cache=off --data.val_fraction=0 --data.path=" + folder_.path("images") + " ";
  }
  std::string from(const std::string& name) const { return "--model.from=" + folder_.path(name) + " "; }

  /// The predictions of all images, as text.
  std::string predict(int ranks, const std::string& arguments) {
    const std::string out = folder_.path("out" + std::to_string(++count_) + ".jsonl");
    const ProgramResult outcome = run_ranks(ranks, "predict --eval.batch_size=4 --predict.probabilities=true " +
                                                       images() + arguments + " --predict.out=" + out);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return outcome.exit_code == 0 ? testing::read_file(out) : outcome.output;
  }

  static std::vector<Json> lines_of(const std::string& text) {
    std::vector<Json> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
    return lines;
  }

  testing::TemporaryFolder folder_;
  int count_ = 0;
};

TEST_F(ModelFromTest, FolderStandsForItsKeys) {
  const std::string found = predict(2, from("model"));
  write("names.txt", "red\ngreen\nblue\n");
  const std::string keys =
      std::string(kVitKeys) + "--init.from=" + folder_.path("model/model.safetensors") +
      " --data.val_transform=resize,size=20,filter=bicubic --data.val_transform=center_crop,size=16" +
      " --data.val_transform=normalize,mean=0.5,0.4,0.3,std=0.5,0.25,0.125 ";
  const std::vector<Json> lines = lines_of(found);
  const std::vector<Json> expected = lines_of(predict(1, keys));
  ASSERT_EQ(lines.size(), 12U);
  ASSERT_EQ(expected.size(), 12U);
  const std::vector<std::string> names = {"red", "green", "blue"};  // names in this order, not in that of the folders
  bool is_spread = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["probabilities"], expected[i]["probabilities"]);
    const std::string id = lines[i]["id"];
    EXPECT_EQ(names[lines[i]["target"].get<std::size_t>()], id.substr(0, id.find('/')));
    for (const Json& each : lines[i]["top"]) EXPECT_EQ(each["class"], names[each["index"].get<std::size_t>()]);
    is_spread = is_spread || lines[i]["probabilities"] != lines[0]["probabilities"];
  }
  EXPECT_TRUE(is_spread);
  // The key init.from takes the weights and the names of the classes without model.from.
  const std::string by_init =
      predict(1, std::string(kVitKeys) + "--init.from=" + folder_.path("model") +
                     " --data.val_transform=resize,size=20,filter=bicubic --data.val_transform=center_crop,size=16"
                     " --data.val_transform=normalize,mean=0.5,0.4,0.3,std=0.5,0.25,0.125");
  EXPECT_EQ(by_init, found);
}

TEST_F(ModelFromTest, UnlabeledImagesAndGivenKeys) {
  const std::string found = predict(2, from("model") + "--data.unlabeled=true");
  EXPECT_EQ(lines_of(found).front()["top"].size(), 3U);
  EXPECT_EQ(lines_of(found).front()["top"][0].count("class"), 1U);
  const std::string squashed = from("model") + "--data.val_transform=resize,size=16,mode=squash ";
  EXPECT_NE(predict(1, squashed), predict(1, from("model")));
  const ProgramResult config = testing::run_shell(testing::trainer_program() + " config " + images() + squashed);
  EXPECT_EQ(config.exit_code, 0) << config.output;
  EXPECT_NE(config.output.find("resize,size=16,mode=squash"), std::string::npos) << config.output;
  EXPECT_EQ(config.output.find("center_crop,size=16"), std::string::npos) << config.output;
  EXPECT_NE(config.output.find("model.from = " + folder_.path("model")), std::string::npos) << config.output;
}

TEST_F(ModelFromTest, PyTorchWeightsInAFolder) {
  fs::create_directories(folder_ / "torch");
  write_weights("torch/weights.pt", vit_shapes(3));
  fs::rename(folder_ / "torch/weights.pt", folder_ / "torch/pytorch_model.bin");
  write("torch/config.json", vit_config().dump());
  EXPECT_EQ(predict(2, from("torch")), predict(1, from("model")));
}

TEST_F(ModelFromTest, FineTuningKeepsTransformsAndClasses) {
  const std::string run = folder_.path("run");
  const ProgramResult outcome =
      run_ranks(2, images() + from("model") + "--train.global_batch_size=6 --train.max_steps=2 --optim.lr=0.001 " +
                       "--eval.every=never --run.dir=" + run);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const std::string resolved = testing::read_file(run + "/config.resolved.ini");
  for (const char* const part :
       {"random_resized_crop,size=16,filter=bicubic", "resize,size=20,filter=bicubic", "center_crop,size=16",
        "normalize,mean=0.5,0.4,0.3,std=0.5,0.25,0.125", "name = vit_tiny_patch16_224"}) {
    EXPECT_NE(resolved.find(part), std::string::npos) << part;
  }
  // The folder is not needed any more.
  fs::rename(folder_ / "model", folder_ / "elsewhere");
  const std::string out = folder_.path("trained.jsonl");
  const ProgramResult predicted = run_ranks(2, "predict --from " + run + " --predict.out=" + out);
  ASSERT_EQ(predicted.exit_code, 0) << predicted.output;
  for (const Json& line : lines_of(testing::read_file(out))) {
    const std::string id = line["id"];
    EXPECT_EQ(line["target"], id.starts_with("red") ? 0 : id.starts_with("green") ? 1 : 2);
  }
}

// A ResNet-18 with 4 channels: every size follows from the tensors.
std::vector<std::pair<std::string, Shape>> resnet_shapes() {
  std::vector<std::pair<std::string, Shape>> shapes = {{"conv1.weight", {4, 3, 3, 3}}};
  const auto add_norm = [&shapes](const std::string& name, std::int64_t channels) {
    for (const char* const part : {".weight", ".bias", ".running_mean", ".running_var"}) {
      shapes.emplace_back(name + part, Shape{channels});
    }
  };
  add_norm("bn1", 4);
  std::int64_t in = 4;
  for (int s = 0; s < 4; ++s) {
    const std::int64_t out = 4 << s;
    for (int i = 0; i < 2; ++i, in = out) {
      const std::string unit = "layer" + std::to_string(s + 1) + "." + std::to_string(i);
      shapes.emplace_back(unit + ".conv1.weight", Shape{out, in, 3, 3});
      add_norm(unit + ".bn1", out);
      shapes.emplace_back(unit + ".conv2.weight", Shape{out, out, 3, 3});
      add_norm(unit + ".bn2", out);
      if (s == 0 || i == 1) continue;
      shapes.emplace_back(unit + ".downsample.0.weight", Shape{out, in, 1, 1});
      add_norm(unit + ".downsample.1", out);
    }
  }
  shapes.emplace_back("fc.weight", Shape{3, 32});
  shapes.emplace_back("fc.bias", Shape{3});
  return shapes;
}

TEST_F(ModelFromTest, FilesAreKnownByTheirTensors) {
  std::vector<std::pair<std::string, Shape>> shapes = resnet_shapes();
  write_weights("resnet.safetensors", shapes);
  for (auto& [name, shape] : shapes) name.insert(0, "module.");
  write_weights("wrapped.pth", shapes);
  const std::string sizes = "--data.val_transform=resize,size=16,mode=squash ";
  const std::string keys = "--model.name=resnet18 --model.width=4 --model.stem=small --init.from=";
  const std::string expected = predict(1, sizes + keys + folder_.path("resnet.safetensors"));
  EXPECT_EQ(predict(2, sizes + from("resnet.safetensors")), expected);
  EXPECT_EQ(predict(1, sizes + from("wrapped.pth")), expected);
  const ProgramResult config =
      testing::run_shell(testing::trainer_program() + " config " + images() + from("resnet.safetensors"));
  EXPECT_NE(config.output.find("resnet18"), std::string::npos) << config.output;
  const std::string unlabeled = predict(1, sizes + from("resnet.safetensors") + "--data.unlabeled=true");
  EXPECT_EQ(lines_of(unlabeled).front()["probabilities"].size(), 3U);
}

TEST_F(ModelFromTest, MalformedFoldersHaveOneSentence) {
  struct Row {
    std::string name;
    std::function<void(Json&)> change;
    std::vector<std::string> parts;
    int code = kCheckpoint;
  };
  const std::vector<Row> rows = {
      {"unknown",
       [](Json& c) { c["architecture"] = "swin_tiny"; },
       {"architecture 'swin_tiny' is not supported; choose one of", "resnet50", "vit_base_patch16_224",
        "convnext_tiny"}},
      {"argument", [](Json& c) { c["model_args"]["norm_layer"] = "rms"; }, {"model_args.norm_layer = \"rms\""}},
      {"value", [](Json& c) { c["model_args"]["depth"] = "deep"; }, {"model.depth", "deep"}, 2},
      {"labels", [](Json& c) { c["label_names"] = {"a"}; }, {"label_names has 1 entries, but num_classes is 3"}},
      {"shape",
       [](Json& c) { c["model_args"]["embed_dim"] = 48; },
       {"does not fit the model", "in the file", "float32 [24]", "float32 [48]", "check the keys of the model"}},
      {"crop", [](Json& c) { c["pretrained_cfg"]["crop_mode"] = "border"; }, {"crop_mode = \"border\""}},
      {"size",
       [](Json& c) {
         c["pretrained_cfg"]["input_size"] = {3, 16, 24};
       },
       {"input_size is not square"}},
      {"other",
       [](Json& c) {
         c = {{"model_type", "bert"}};
       },
       {"library transformers"}},
  };
  const auto expect_refusal = [this](const std::string& name, const std::vector<std::string>& parts, int code) {
    const ProgramResult outcome =
        run_ranks(2, "predict " + images() + from(name) + "--predict.out=" + folder_.path(name + ".jsonl"));
    EXPECT_EQ(outcome.exit_code, code) << name << outcome.output;
    EXPECT_EQ(outcome.rank_codes, std::vector<int>(2, code)) << name << outcome.output;
    for (const std::string& part : parts) EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
    const std::size_t first = outcome.output.find(" error ");
    EXPECT_NE(first, std::string::npos) << outcome.output;
    EXPECT_EQ(outcome.output.find(" error ", first + 1), std::string::npos) << outcome.output;
    EXPECT_FALSE(fs::exists(folder_ / (name + ".jsonl")));
  };
  for (const Row& row : rows) {
    Json config = vit_config();
    row.change(config);
    write_model(row.name, config);
    expect_refusal(row.name, row.parts, row.code);
  }
  write_model("text", vit_config());
  write("text/config.json", "{\"architecture\": ");
  expect_refusal("text", {"text/config.json: it is not JSON in UTF-8 at byte"}, kCheckpoint);
  write("empty/config.json", vit_config().dump());
  expect_refusal("empty", {"the folder has neither model.safetensors nor pytorch_model.bin"}, kCheckpoint);
  write_weights("bare/model.safetensors", vit_shapes(3));
  expect_refusal("bare", {"it is not a folder of timm, because it has no file config.json"}, kCheckpoint);
  expect_refusal("nowhere", {"nowhere: it does not exist"}, kCheckpoint);
  write_model("cut", vit_config());
  fs::resize_file(folder_ / "cut/model.safetensors", fs::file_size(folder_ / "cut/model.safetensors") - 100);
  expect_refusal("cut", {"model.safetensors", "truncated"}, kCheckpoint);
  write_weights("table.safetensors", {{"hidden.weight", {4, 4}}});
  expect_refusal("table.safetensors", {"are not those of a ResNet, ViT, ConvNeXt or U-Net"}, kCheckpoint);
}

TEST_F(ModelFromTest, AnotherModelNameIsRefused) {
  const ProgramResult outcome = run_ranks(
      2, "predict " + images() + from("model") + "--model.name=resnet50 --predict.out=" + folder_.path("x.csv"));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_NE(outcome.output.find("contains a model vit_tiny_patch16_224; remove model.name"), std::string::npos)
      << outcome.output;
}

// timm writes a folder and predicts with its own transforms.
TEST_F(ModelFromTest, PredictionsOfTimmAreTheSame) {
  const char* const python = std::getenv("LOCKSTEP_PEER_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "LOCKSTEP_PEER_PYTHON names no Python with timm";
  write("peer.py", R"(
import json, os, sys
try:
    import timm, torch
    from PIL import Image
    from timm.models import save_for_hf
except ImportError:
    sys.exit(77)
folder, images = sys.argv[1:]
torch.manual_seed(1)
cases = {
    'vit': ('vit_tiny_patch16_224', dict(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3),
            dict(crop_pct=0.9, interpolation='bicubic')),
    'pooled': ('vit_tiny_patch16_224', dict(img_size=24, patch_size=8, embed_dim=24, depth=1, num_heads=3,
                                            global_pool='avg', class_token=False, init_values=0.5),
               dict(crop_pct=0.95, interpolation='bilinear', mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))),
    'convnext': ('convnext_tiny', dict(depths=(1, 1, 2, 1), dims=(8, 16, 24, 32)),
                 dict(crop_pct=0.875, crop_mode='squash', interpolation='bicubic', input_size=(3, 40, 40))),
    'resnet': ('resnet18', {}, dict(crop_pct=1.0, interpolation='lanczos', input_size=(3, 48, 48))),
}
for name, (architecture, args, cfg) in cases.items():
    model = timm.create_model(architecture, num_classes=3, **args).eval()
    if 'img_size' in args: cfg['input_size'] = (3, args['img_size'], args['img_size'])
    with torch.no_grad():
        for parameter in model.parameters(): parameter.add_(0.05 * torch.randn_like(parameter))
    model.pretrained_cfg.update(cfg)
    save_for_hf(model, folder + '/timm_' + name, model_args=args,
                model_config=dict(label_names=['blue', 'green', 'red']))
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=model))
    rows = []
    for place, _, files in sorted(os.walk(images)):
        for file in sorted(files, key=lambda f: f.encode()):
            with torch.no_grad():
                out = model(transform(Image.open(os.path.join(place, file)).convert('RGB'))[None]).softmax(1)[0]
            rows.append([os.path.relpath(os.path.join(place, file), images), out.tolist()])
    json.dump(rows, open(folder + '/' + name + '.json', 'w'))
)");
  const ProgramResult peer = testing::run_shell(std::string(python) + " " + folder_.path("peer.py") + " " +
                                                folder_.path(".") + " " + folder_.path("images"));
  if (peer.exit_code == 77) GTEST_SKIP() << "LOCKSTEP_PEER_PYTHON has no timm";
  ASSERT_EQ(peer.exit_code, 0) << peer.output;
  for (const char* const name : {"vit", "pooled", "convnext", "resnet"}) {
    SCOPED_TRACE(name);
    std::map<std::string, Json> expected;
    for (const Json& row : Json::parse(testing::read_file(folder_ / (std::string(name) + ".json")))) {
      expected[row[0]] = row[1];
    }
    const std::vector<Json> lines = lines_of(predict(2, from(std::string("timm_") + name)));
    EXPECT_EQ(lines.size(), expected.size());
    for (const Json& line : lines) {
      const Json& theirs = expected.at(line["id"]);
      for (std::size_t c = 0; c < 3; ++c) {
        EXPECT_NEAR(line["probabilities"][c].get<double>(), theirs[c].get<double>(), 2e-5) << line["id"];
      }
    }
  }
}

}  // namespace model_from_test
}  // namespace lockstep
