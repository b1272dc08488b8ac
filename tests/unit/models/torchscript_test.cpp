// SPDX-License-Identifier: BSD-3-Clause
// Archives of TorchScript with several inputs and outputs, with tied parameters, and archives that cannot be trained.
#include <lockstep/core/error.hpp>

#include <caffe2/serialize/inline_container.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/types.h>

#include <functional>
#include <memory>

#include "models/layers/outline.hpp"
#include "models/script/script_layers.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::models {
namespace torchscript_test {

namespace script = torch::jit;

std::shared_ptr<Model> load(const std::string& path, at::ScalarType dtype = at::kFloat) {
  Section model = Section::with_defaults("model", model_keys());
  model.set("name", "torchscript", "test");
  model.set("file", path, "test");
  return build(model, Task{}, 1, dtype);
}

std::string refusal(const std::string& path) {
  try {
    load(path);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

class TorchScriptModelTest : public ::testing::Test {
 protected:
  std::string saved(const script::Module& module, const std::string& name = "net.pt") const {
    module.save(folder_.path(name));
    return folder_.path(name);
  }

  testing::TemporaryFolder folder_;
};

batch::Batch pair_of(const at::Tensor& image, const at::Tensor& extra) {
  batch::Batch batch(batch::ValueMap{{"extra", extra}, {"image", image}}, image.size(0));
  batch.set_roles(std::make_shared<const batch::Roles>(batch::Roles{.inputs = {"extra", "image"}, .targets = {}}));
  return batch;
}

script::Module two_inputs(const std::string& returned) {
  script::Module module("Net");
  module.register_parameter("weight", torch::full({1}, 3.0).requires_grad_(), false);
  module.define("def forward(self, image, extra):\n    return " + returned + "\n");
  return module;
}

// Arguments are found by name, whatever the order of the inputs.
TEST_F(TorchScriptModelTest, NamedInputsAndOutputs) {
  const auto model = load(saved(two_inputs("{'sum': self.weight * image + extra, 'difference': image - extra}")));
  const at::Tensor image = torch::tensor({1.0F, 2.0F});
  const at::Tensor extra = torch::tensor({10.0F, 20.0F});
  const batch::Outputs outputs = run(*model, pair_of(image, extra));
  ASSERT_EQ(outputs.entries().size(), 2U);
  EXPECT_EQ(outputs.entries()[0].first, "sum");
  EXPECT_TRUE(at::equal(outputs.tensor("sum"), torch::tensor({13.0F, 26.0F})));
  EXPECT_TRUE(at::equal(outputs.tensor("difference"), torch::tensor({-9.0F, -18.0F})));
}

TEST_F(TorchScriptModelTest, TuplesAreNumberedOutputs) {
  const auto model = load(saved(two_inputs("(self.weight * image, extra)")));
  const batch::Outputs outputs = run(*model, pair_of(torch::ones({1}), torch::full({1}, 5.0)));
  EXPECT_EQ(outputs.main().item<float>(), 3);
  EXPECT_EQ(outputs.tensor("output1").item<float>(), 5);
}

TEST_F(TorchScriptModelTest, MissingInputsAreNamed) {
  const auto model = load(saved(two_inputs("self.weight * image + extra")));
  batch::Batch batch(torch::ones({1}));
  try {
    run(*model, batch);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("has the argument 'extra', but the batch has only 1 inputs"),
              std::string::npos)
        << error.what();
  }
}

// One tensor under two names is one parameter with the sum of both gradients: y = w x + w.
TEST_F(TorchScriptModelTest, TiedParametersHaveOneGradient) {
  const at::Tensor shared = torch::full({1}, 2.0).requires_grad_();
  script::Module encoder("Encoder");
  encoder.register_parameter("weight", shared, false);
  script::Module decoder("Decoder");
  decoder.register_parameter("weight", shared, false);
  script::Module module("Net");
  module.register_module("encoder", encoder);
  module.register_module("decoder", decoder);
  module.define("def forward(self, x):\n    return self.encoder.weight * x + self.decoder.weight\n");
  const std::string path = saved(module);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const auto model = load(path, dtype);
    auto parameters = model->named_parameters();
    ASSERT_EQ(parameters.size(), 2U);
    EXPECT_TRUE(parameters["encoder.weight"].is_same(parameters["decoder.weight"]));
    run(*model, torch::full({1}, 5.0, dtype)).backward();
    EXPECT_EQ(parameters["encoder.weight"].grad().item<double>(), 6);
    const torch::NoGradGuard no_grad;
    parameters["encoder.weight"].fill_(1);
    EXPECT_EQ(run(*model, torch::full({1}, 5.0, dtype)).item<double>(), 6) << dtype;
  }
}

TEST_F(TorchScriptModelTest, QuantizedModulesAreRefused) {
  script::Module layer("Layer");
  layer.register_buffer("table", at::quantize_per_tensor(torch::ones({4}), 0.1, 0, at::kQInt8));
  script::Module module("Net");
  module.register_parameter("weight", torch::ones({1}), false);
  module.register_module("layer", layer);
  module.define("def forward(self, x):\n    return self.weight * x\n");
  const std::string path = saved(module);
  EXPECT_EQ(refusal(path), "model.file: '" + path +
                               "' cannot be trained: its part 'layer' is quantized. Save the module before "
                               "quantization");
}

// torch.export writes records of other names.
TEST_F(TorchScriptModelTest, ArchivesOfTorchExportAreRefused) {
  for (const char* record : {"archive_format", "serialized_exported_program.json", "models/model.json"}) {
    const std::string path = folder_.path("net.pt2");
    caffe2::serialize::PyTorchStreamWriter writer(path);
    writer.writeRecord(record, "pt2", 3);
    writer.writeEndOfFile();
    EXPECT_EQ(refusal(path), "model.file: '" + path +
                                 "' is an archive of torch.export (.pt2), which has no code that can be trained here: "
                                 "use torch.jit.script(model).save(...) instead")
        << record;
  }
}

TEST_F(TorchScriptModelTest, ModulesWithoutTrainedParametersAreRefused) {
  script::Module module("Net");
  module.register_buffer("table", torch::ones({1}));
  module.define("def forward(self, x):\n    return self.table * x\n");
  EXPECT_NE(refusal(saved(module)).find("no parameter requires a gradient"), std::string::npos);
  script::Module silent("Silent");
  silent.register_parameter("weight", torch::ones({1}), false);
  silent.define("def other(self, x):\n    return self.weight * x\n");
  EXPECT_NE(refusal(saved(silent)).find("has no method 'forward'"), std::string::npos);
}

TEST_F(TorchScriptModelTest, BatchNormInTheCodeIsKnown) {
  EXPECT_EQ(script_with_batch_norm(*load(saved(two_inputs("self.weight * image + extra")))), "");
  script::Module module("Net");
  module.register_parameter("weight", torch::ones({2}).requires_grad_(), false);
  module.define(
      "def forward(self, x):\n"
      "    return torch.batch_norm(x, self.weight, None, None, None, True, 0.1, 1e-5, False)\n");
  const std::string path = saved(module);
  const auto model = load(path);
  EXPECT_EQ(script_with_batch_norm(*model), path);
  // The outline of an archive has its values, which are in the file.
  Section keys = Section::with_defaults("model", model_keys());
  keys.set("name", "torchscript", "test");
  keys.set("file", path, "test");
  EXPECT_TRUE(at::equal(outline(keys, Task{})->named_parameters()["weight"], torch::ones({2})));
}

}  // namespace torchscript_test
}  // namespace lockstep::models
