// SPDX-License-Identifier: BSD-3-Clause
// Files that safetensors and PyTorch wrote: what they hold, to the bit, and what must be refused.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <regex>

#include "checkpoints/foreign/foreign.hpp"
#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace interop_test {

using checkpoints::Archive;
using checkpoints::Array;
using checkpoints::encode_name;
using checkpoints::read_foreign;

std::string file(const std::string& name) { return golden("interop/" + name).string(); }

std::string error_of(const std::string& path) {
  try {
    read_foreign(path);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

template <class Value>
Value element(const Array& array, std::size_t i) {
  Value value{};
  std::memcpy(&value, array.bytes.data() + i * sizeof value, sizeof value);
  return value;
}

double real(const Array& array, std::size_t i) {
  switch (array.dtype) {
    case DType::float32:
      return element<float>(array, i);
    case DType::float64:
      return element<double>(array, i);
    case DType::float16:
      return half_to_float(element<std::uint16_t>(array, i));
    case DType::bfloat16:
      return bfloat16_to_float(element<std::uint16_t>(array, i));
    default:
      throw std::runtime_error("not a type of real numbers");
  }
}

std::int64_t whole(const Array& array, std::size_t i) {
  switch (array.dtype) {
    case DType::int8:
      return element<std::int8_t>(array, i);
    case DType::int16:
      return element<std::int16_t>(array, i);
    case DType::int32:
      return element<std::int32_t>(array, i);
    case DType::int64:
      return element<std::int64_t>(array, i);
    default:
      return element<std::uint8_t>(array, i);
  }
}

/// Stored decimals, rounded to the array's type.
double expected_real(const Json& value, DType dtype) {
  const double decimal = number(value);
  if (dtype == DType::float32) return static_cast<float>(decimal);
  if (dtype == DType::float16) return half_to_float(float_to_half(static_cast<float>(decimal)));
  if (dtype == DType::bfloat16) return bfloat16_to_float(float_to_bfloat16(static_cast<float>(decimal)));
  return decimal;
}

/// @param tensor  {"dtype", "shape", "values" or "data", ...}
void expect_array(const Array& array, const Json& tensor) {
  EXPECT_EQ(name_of(array.dtype), tensor.at("dtype").get<std::string>());
  EXPECT_EQ(array.shape, tensor.at("shape").get<std::vector<std::int64_t>>());
  const Json& values = tensor.contains("values") ? tensor.at("values") : tensor.at("data");
  ASSERT_EQ(array.bytes.size(), values.size() * size_of(array.dtype));
  const bool is_real = array.dtype == DType::float16 || array.dtype == DType::bfloat16 ||
                       array.dtype == DType::float32 || array.dtype == DType::float64;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!is_real) {
      EXPECT_EQ(whole(array, i), values[i].is_boolean() ? values[i].get<bool>() : values[i].get<std::int64_t>());
      continue;
    }
    const double expected = expected_real(values[i], array.dtype), actual = real(array, i);
    EXPECT_TRUE(std::isnan(expected) ? std::isnan(actual)
                                     : expected == actual && std::signbit(expected) == std::signbit(actual))
        << i << ": " << actual << " instead of " << expected;
  }
}

/// Every tensor of `tensors` lies below `group`, and nothing else does.
void expect_arrays(const Archive& archive, const std::string& group, const Json& tensors,
                   const std::string& prefix = "") {
  EXPECT_EQ(archive.arrays_in(group.empty() ? "/" : group).size(), tensors.size());
  for (const auto& [name, tensor] : tensors.items()) {
    SCOPED_TRACE(group + "/" + prefix + name);
    expect_array(archive.array(group + "/" + encode_name(prefix + name)), tensor);
  }
}

/// Numbers and texts of `expected` are attributes of `group`, lists and maps groups below it.
void expect_attributes(const Archive& archive, const std::string& group, const Json& expected) {
  for (const auto& [key, value] : expected.items()) {
    SCOPED_TRACE(group + " " + key);
    const std::string name = encode_name(key);
    if (value.is_null()) {
      EXPECT_FALSE(archive.has_attribute(group, name));
    } else if (value.is_boolean()) {
      EXPECT_EQ(archive.integer(group, name), value.get<bool>());
    } else if (value.is_number_integer()) {
      EXPECT_EQ(archive.integer(group, name), value.get<std::int64_t>());
    } else if (value.is_number()) {
      EXPECT_EQ(archive.real(group, name), value.get<double>());
    } else if (value.is_string()) {
      EXPECT_EQ(archive.text(group, name), value.get<std::string>());
    } else {
      const std::string child = (group == "/" ? "" : group) + "/" + name;
      ASSERT_TRUE(archive.has(child));
      expect_attributes(archive, child, value);
    }
  }
}

class InteropReference : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::is_directory(root() / "interop")) GTEST_SKIP() << "no reference data in " << root();
  }
};

TEST_F(InteropReference, EveryTypeOfSafetensorsAndPyTorch) {
  const Json tensors = load("interop/tensors.json");
  const Json& dtypes = tensors.at("dtypes");
  const Archive safetensors = read_foreign(file("dtypes.safetensors"));
  expect_arrays(safetensors, "", dtypes);
  expect_attributes(safetensors, "/", tensors.at("dtypes_safetensors_metadata"));
  const Archive pytorch = read_foreign(file("dtypes.pt"));
  expect_arrays(pytorch, "", dtypes);
  const auto ordered = nlohmann::ordered_json::parse(std::ifstream(file("tensors.json"))).at("dtypes");
  std::vector<std::string> order;
  for (const auto& [name, tensor] : ordered.items()) order.push_back("/" + encode_name(name));
  EXPECT_EQ(pytorch.array_paths(), order);
  expect_arrays(read_foreign(file("no_metadata.safetensors")), "", tensors.at("no_metadata"));
  EXPECT_TRUE(read_foreign(file("no_tensors.safetensors")).array_paths().empty());
}

/// The field; without it, the array whose number is that of the record in the text "one flipped bit in data/0".
std::string damaged_array(const Json& verdict) {
  if (verdict.contains("damaged_array")) return verdict.at("damaged_array");
  std::smatch found;
  const std::string reason = verdict.at("reason");
  if (!std::regex_search(reason, found, std::regex(R"(data/(\d+))"))) throw std::runtime_error("no record: " + reason);
  return read_foreign(file("malformed/pt_good.pt")).array_paths().at(std::stoul(found[1])).substr(1);
}

TEST_F(InteropReference, WhatIsNotReadIsRefusedWithAdvice) {
  EXPECT_NE(error_of(file("dtypes_protocol4.pt")).find("pickle protocol 4"), std::string::npos);
  const std::string error = error_of(file("less_common_dtypes.safetensors"));
  EXPECT_NE(error.find(": tensor '"), std::string::npos) << error;
  EXPECT_NE(error.find("is not one of F32, F64"), std::string::npos) << error;
  EXPECT_NE(error_of(file("malformed/pt_whole_module.pt")).find("torch.nn.modules.container.Sequential"),
            std::string::npos);
  EXPECT_NE(error_of(file("malformed/pt_whole_module.pt")).find("state_dict()"), std::string::npos);
  const Json verdict = load("interop/malformed/verdicts.json").at("files").at("pt_crc_mismatch.pt");
  const std::string damage = error_of(file("malformed/pt_crc_mismatch.pt"));
  const std::string array = damaged_array(verdict);
  EXPECT_NE(damage.find(": /" + array + ": it is damaged"), std::string::npos) << damage;
  EXPECT_NE(error_of(file("models/mlp_scripted.pt")).find("TorchScript"), std::string::npos);
}

TEST_F(InteropReference, ViewsBecomeRowMajor) {
  for (const char* name : {"views.pt", "views_legacy.pt"}) {
    const Archive archive = read_foreign(file(name));
    expect_arrays(archive, "", load("interop/tensors.json").at("views"));
    EXPECT_EQ(archive.first_path_of("/same_as_contiguous"), "/contiguous");
  }
}

TEST_F(InteropReference, FilesFromBeforeVersion16) {
  const Archive archive = read_foreign(file("dtypes_legacy.pt"));
  EXPECT_EQ(archive.array_paths(), read_foreign(file("dtypes.pt")).array_paths());
  expect_arrays(archive, "", load("interop/tensors.json").at("dtypes"));
}

TEST_F(InteropReference, PlainObjectsBecomeAttributesAndGroups) {
  Json expected = load("interop/tensors.json").at("objects");
  const Archive archive = read_foreign(file("objects.pt"));
  // Not plain values in the JSON file, or not in the same words.
  EXPECT_EQ(archive.real("/", "inf"), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(archive.real("/", "nan")));
  EXPECT_EQ(archive.text("/", "dtype"), "torch." + expected.at("dtype").get<std::string>());
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string path = i == 0 ? "/tensor_in_list/0" : "/tensor_in_list/1/t";
    const Json& item = expected.at("tensor_in_list").at(i);
    expect_array(archive.array(path), i == 0 ? item : item.at("t"));
  }
  for (const char* name : {"inf", "nan", "dtype", "tensor_in_list", "long_text_length", "ordered_keys"}) {
    expected.erase(name);
  }
  expect_attributes(archive, "/", expected);
}

TEST_F(InteropReference, OptimizerStates) {
  const Json optimizers = load("interop/checkpoints.json").at("optimizers");
  EXPECT_FALSE(optimizers.empty());
  for (const auto& [name, expected] : optimizers.items()) {
    SCOPED_TRACE(name);
    const Archive archive = read_foreign(file(expected.at("file")));
    expect_attributes(archive, "/param_groups", expected.at("param_groups"));
    for (const auto& [index, state] : expected.at("state").items()) {
      for (const auto& [slot, tensor] : state.items()) {
        if (!tensor.is_object()) continue;
        SCOPED_TRACE(index + "/" + slot);
        expect_array(archive.array("/state/" + index + "/" + slot), tensor);
      }
    }
  }
}

TEST_F(InteropReference, TrainingCheckpointsOfThreeLayouts) {
  const Json expected = load("interop/checkpoints.json").at("checkpoint");
  const Json& state = expected.at("state_dict");
  const Archive mmengine = read_foreign(file("checkpoint_mmengine_style.pth"));
  expect_arrays(mmengine, "/state_dict", state);
  expect_attributes(mmengine, "/meta", expected.at("meta"));
  expect_attributes(mmengine, "/param_schedulers", expected.at("param_schedulers"));
  expect_attributes(mmengine, "/optimizer/param_groups", expected.at("optimizer").at("param_groups"));
  expect_arrays(read_foreign(file("checkpoint_detectron_style.pth")), "/model", state, "module.");
  const Archive nanogpt = read_foreign(file("checkpoint_nanogpt_style.pt"));
  expect_arrays(nanogpt, "/model", state);
  EXPECT_EQ(real(nanogpt.array("/best_val_loss"), 0), 2.5);
  expect_arrays(read_foreign(file("state_dict_with_module_prefix.pth")), "", state, "module.");
  std::vector<std::string> left_out;
  const Archive runner = read_foreign(file("checkpoint_mmengine_runner.pth"), {.left_out = &left_out});
  EXPECT_FALSE(runner.arrays_in("/state_dict").empty());
  const std::string classes = ::testing::PrintToString(left_out);
  EXPECT_NE(classes.find("mmengine.logging.history_buffer.HistoryBuffer"), std::string::npos) << classes;
}

TEST_F(InteropReference, ModelsAreReadWhole) {
  for (const char* name : {"gpt", "gpt_bias", "mlp", "resnet18", "vit"}) {
    EXPECT_FALSE(read_foreign(file(std::string("models/") + name + ".safetensors")).array_paths().empty()) << name;
  }
  for (const char* name : {"gpt", "mlp"}) {  // both formats hold the same
    const Archive one = read_foreign(file(std::string("models/") + name + ".pt"));
    const Archive other = read_foreign(file(std::string("models/") + name + ".safetensors"));
    for (const std::string& path : other.array_paths()) {
      ASSERT_TRUE(one.has(path)) << path;
      EXPECT_TRUE(std::ranges::equal(one.array(path).bytes, other.array(path).bytes)) << path;
    }
  }
}

TEST_F(InteropReference, MalformedFilesGetTheirVerdict) {
  const Json files = load("interop/malformed/verdicts.json").at("files");
  EXPECT_GT(files.size(), 100U);
  for (const auto& [name, verdict] : files.items()) {
    SCOPED_TRACE(name + ": " + verdict.at("reason").get<std::string>());
    const std::string path = file("malformed/" + name);
    const auto started = std::chrono::steady_clock::now();
    const std::string error = error_of(path);
    EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(2));
    if (verdict.at("expected") != "either") {
      EXPECT_EQ(error.empty(), verdict.at("expected") == "accept") << error;
    }
    if (error.empty()) continue;
    EXPECT_TRUE(error.starts_with(path + ": ")) << error;
    EXPECT_LT(error.size(), path.size() + 400) << error;
    EXPECT_TRUE(std::none_of(error.begin(), error.end(), [](unsigned char c) { return c < 0x20; })) << error;
  }
}

}  // namespace interop_test
}  // namespace lockstep::testing::reference
