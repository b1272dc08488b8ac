// SPDX-License-Identifier: BSD-3-Clause
// Commands that write a checkpoint from others: average, cast, edit.

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "checkpoints/store/store.hpp"
#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/locate.hpp"
#include "ckpt/reading/text.hpp"
#include "ckpt/reading/values.hpp"
#include "core/text/parse_value.hpp"

namespace lockstep::ckpt {

namespace {

namespace fs = std::filesystem;
using checkpoints::Archive;

/// A Lockstep checkpoint, completely in memory.
Archive read_own(const std::string& path) {
  const InspectedFile source = open_source(path);
  if (!source.is_own()) {
    throw usage_error(escaped(source.path()) + ": it is not a Lockstep checkpoint but " + source.kind());
  }
  return checkpoints::read(source.path());
}

/// Whether an array belongs to a model: the trained one or its average.
bool is_of_model(const std::string& path) {
  return path.starts_with("/model/") || path.starts_with("/ema/params/") || path.starts_with("/ema/buffers/");
}

/// Writes the checkpoint into the folder of --to and verifies it.
Exit write(const Request& request, const Archive& archive, const std::string& done) {
  const std::string folder = request.text("to");
  if (folder.empty()) throw usage_error("--to DIR is missing: the folder in which the new checkpoint is written");
  const std::int64_t step = archive.integer("/", "step");
  const std::string path = (fs::path(folder) / checkpoints::folder_name(step)).string();
  if (fs::exists(path)) {
    throw Failure(Exit::refused, escaped(path) + ": the checkpoint already exists and is not overwritten");
  }
  fs::create_directories(folder);
  const std::string written = checkpoints::write(folder, step, archive);
  checkpoints::verify(written);
  request.wants_json() ? print(OrderedJson{{"to", escaped(written)}, {"step", step}})
                       : print(fmt::format("{}: {}, verified\n", escaped(written), done));
  return Exit::ok;
}

/// The mean of the same array of several checkpoints, computed in double precision in the order of the checkpoints.
Array mean_of(const std::vector<Archive>& archives, const std::string& path) {
  const Array& last = archives.back().array(path);
  for (const Archive& archive : archives) {
    const bool is_same =
        archive.has(path) && archive.array(path).dtype == last.dtype && archive.array(path).shape == last.shape;
    if (!is_same) {
      throw Failure(Exit::incompatible, escaped(archive.origin()) + ": " + escaped(path) +
                                            " is missing or has another type or shape than in " +
                                            escaped(archives.back().origin()));
    }
  }
  auto [mean, bytes] = new_array(last.dtype, last.shape);
  std::vector<double> sums(static_cast<std::size_t>(element_count(last.shape)));
  for (const Archive& archive : archives) {
    const Array& array = archive.array(path);
    with_loader(array.dtype, [&](auto load) {
      for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] += static_cast<double>(load(array.bytes.data(), static_cast<std::int64_t>(i)));
      }
    });
  }
  const auto count = static_cast<double>(archives.size());
  for (std::size_t i = 0; i < sums.size(); ++i) store(last.dtype, bytes, static_cast<std::int64_t>(i), sums[i] / count);
  return mean;
}

/// "run_id" or "/optim/0@type", as `ckpt diff` prints them.
std::pair<std::string, std::string> attribute_in(const std::string& name) {
  const auto position = name.rfind('@');
  if (position == std::string::npos) return {"/", name};
  return {position == 0 ? "/" : name.substr(0, position), name.substr(position + 1)};
}

/// `text` as a value of the type of `old`.
checkpoints::Attribute parsed_like(const checkpoints::Attribute& old, const std::string& text,
                                   const std::string& name) {
  if (std::holds_alternative<std::string>(old)) return text;
  if (std::holds_alternative<double>(old)) {
    if (const auto real = parse_real(text)) return *real;
  } else if (const auto integer = parse_integer(text)) {
    return *integer;
  }
  throw usage_error("--set " + escaped(name) + ": '" + escaped(text) + "' does not have the type of the attribute");
}

/// Sets one attribute, from "NAME=VALUE".
void set_attribute(Archive& archive, const std::string& rule) {
  const auto equals = rule.find('=');
  if (equals == 0 || equals == std::string::npos) throw usage_error("--set is written NAME=VALUE");
  const std::string name = rule.substr(0, equals);
  const std::string text = rule.substr(equals + 1);
  const auto [group, attribute] = attribute_in(name);
  if (group == "/" && attribute == "step") throw usage_error("--set step: the step cannot be changed");
  const auto& known = archive.attributes_of(group);
  const auto old = known.find(attribute);
  if (old == known.end() && group != "/" && group != "/extra") {
    throw Failure(Exit::not_found, escaped(archive.origin()) + ": the attribute " + escaped(name) + " does not exist");
  }
  archive.set(group, attribute, old == known.end() ? text : parsed_like(old->second, text, name));
}

}  // namespace

Exit average(const Request& request) {
  std::vector<Archive> archives;
  for (const std::string& path : request.paths) {
    archives.push_back(read_own(path));
    const std::string fault = checkpoints::nonfinite_in(open_source(path).path(), "/model/params");
    if (!fault.empty()) throw Failure(Exit::policy, escaped(path) + ": " + fault + "; leave this checkpoint out");
  }
  const Archive result = archives.back().with_arrays([&](const std::string& path, const Array& array) {
    return is_of_model(path) && is_real_floating(array.dtype) ? mean_of(archives, path) : array;
  });
  return write(request, result, fmt::format("average of {} checkpoints", archives.size()));
}

Exit cast(const Request& request) {
  const DType dtype = dtype_from_name(request.text("dtype", "bfloat16"));
  if (!is_real_floating(dtype)) throw usage_error("--dtype must be float32, float64, float16 or bfloat16");
  const Archive source = read_own(request.paths[0]);
  const Archive result = source.with_arrays([&](const std::string& path, const Array& array) {
    return is_of_model(path) && is_real_floating(array.dtype) ? cast_to(array, dtype) : array;
  });
  return write(request, result, fmt::format("model in {}", name_of(dtype)));
}

Exit edit(const Request& request) {
  if (request.texts("set").empty()) throw usage_error("edit needs --set NAME=VALUE");
  Archive result = read_own(request.paths[0]);
  for (const std::string& rule : request.texts("set")) set_attribute(result, rule);
  return write(request, result, fmt::format("{} attributes set", request.texts("set").size()));
}

}  // namespace lockstep::ckpt
